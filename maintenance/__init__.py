"""Maintenance: kept moments, expiry, deletion of files, compaction, orphan removal, lifetimes of rows."""
