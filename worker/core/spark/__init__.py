"""The Spark session of a worker and its long-running Python tasks."""
