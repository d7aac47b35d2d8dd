"""Receive row changes from producers, keep them in a journal, and stage them in batches for the Spark
worker.
"""
