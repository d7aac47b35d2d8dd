"""What the server says about itself: logs.py for lines on stderr, metrics.py for numbers at /metrics."""
