"""Steps that keep a table healthy: compaction, manifests, the archive of old changes."""
