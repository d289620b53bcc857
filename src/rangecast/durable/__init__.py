"""What survives a crash: files of arrays, documents, lines, locks, and objects in buckets.

arrays.py      one file of named arrays: aligned, checksummed, mapped
documents.py   small documents with a sum, written aside and renamed
lines.py       lines with sums in append-only files, and small tables made of them
segments.py    records in files: what the store's log and the broker's log share
lock.py        one writer at a time, and locks in a forked process
bucket.py      addresses, what is asked of a bucket, and files that may be objects
fetched.py     objects as local files, fetched once per machine
"""
