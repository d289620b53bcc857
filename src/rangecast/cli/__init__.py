"""The commands of `rangecast`, a module per group; app.py joins them.

match.py check.py workloads.py     matching files, and what goes with it
store.py spark.py kafka.py         durable subscriptions, and the pipelines
broker.py                          the live broker
demo.py                            the demos of examples/demo
console.py     what people see: lines and bars on stderr, tables on stdout, exit codes
"""
