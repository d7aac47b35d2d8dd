"""The SQL store: one truth for names, documents, history, transactions, identity.

SQLite and PostgreSQL alike.
"""
