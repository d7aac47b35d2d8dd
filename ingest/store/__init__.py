"""The SQL tables of landing: tables, settings, watermarks, jobs, claims, workers."""
