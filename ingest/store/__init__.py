"""The rows of landing in SQL: tables, settings, watermarks, jobs, claims, workers."""
