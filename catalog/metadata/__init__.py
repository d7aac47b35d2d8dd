"""The metadata engine: plain dicts in, plain dicts out; no I/O."""
