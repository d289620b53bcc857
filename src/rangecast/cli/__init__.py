"""The commands of `rangecast`, a module per group; app.py joins them.

match.py explain.py schema.py generate.py indexes.py experiment.py     matching files, and what goes with it
store.py spark.py spark_stream.py demo.py stream_demo.py               durable subscriptions, and the pipeline
console.py     what people see: lines and bars on stderr, tables on stdout, exit codes
"""
