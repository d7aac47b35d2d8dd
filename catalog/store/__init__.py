"""The SQL store of names, documents, history, transactions and identity, on SQLite and on PostgreSQL."""
