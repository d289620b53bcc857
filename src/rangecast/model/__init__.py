"""The three tables of arrays that everything passes on: subscriptions, events and matches.

ids.py              ids of subscriptions, int64 or strings
subscriptions.py    ids and boxes
texts.py            the conditions as they were written, compressed beside them
user_columns.py     the texts and the users' own columns, row by row
user_columns.py     when subscriptions end, as a caller says it
events.py           codes by attribute
matches.py          the answer: offsets and ids
explanation.py      why a subscription does or does not match an event
"""
