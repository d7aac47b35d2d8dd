"""The metadata engine: pure functions on plain dicts, without I/O."""
