"""How quickly changes are acknowledged and become visible: `python -m bench.ingest`."""
