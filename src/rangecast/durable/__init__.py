"""Object stores: buckets of S3, Google Cloud Storage and Azure, and what this machine has fetched of them.

bucket.py          addresses, and the few things that are asked of a bucket
fetched.py         objects as local files, fetched once per machine
object_files.py    files that may be objects, read by ranges
"""
