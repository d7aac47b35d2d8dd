"""The files and commits of Iceberg tables, as tasks and the driver read and write them."""
