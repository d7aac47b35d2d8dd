"""Files on `file://` and `s3://`. `StorageFiles` selects the adapter by the scheme of a location.

base.py       `Files`, the interface that the services use
files.py      StorageFiles
local.py      file://
s3.py         s3://, by obstore (chosen by bench/storage.py)
avro.py       one column of an Avro file, from untrusted bytes
reachable.py  every file that the metadata of a table refers to
purge.py      deletes these files
"""
