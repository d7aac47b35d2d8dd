"""The Iceberg REST catalog: HTTP, metadata engine, SQL store, storage, identity.

It imports none of the other packages.
"""
