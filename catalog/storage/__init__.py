"""Files of the lake on `file://` and `s3://`: one adapter for each, one front (`StorageFiles`) for both.

```
files.py      StorageFiles: keeps `catalog.storage.base.Files`, chooses the adapter by scheme
local.py      file://
syncing.py    waiting for the disk
s3.py         s3://, over obstore (chosen by bench/storage.py); s3_client.py sets it up
settings.py   S3Settings
avro.py       one column of an Avro file, from bytes that nobody has to trust
reachable.py  every file that a table's metadata leads to
purge.py      deletes them
```
"""
