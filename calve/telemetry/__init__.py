"""Telemetry: logs.py for lines on stderr, metrics.py for /metrics."""
