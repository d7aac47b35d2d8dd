"""The Iceberg REST catalog: HTTP, metadata engine, SQL store, storage, identity.

Imports nothing of the other parts.
"""
