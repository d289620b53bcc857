"""The commands of `rangecast`, a module each; app.py puts them together.

match.py explain.py schema.py generate.py indexes.py experiment.py demo.py   the commands
loading.py     subscriptions from a file
streaming.py   events from a file, batch by batch
matching.py    events against an index, pairs into a file
inference.py   a schema from a file of events
console.py     what people see: lines and bars on stderr, tables on stdout, exit codes
"""
