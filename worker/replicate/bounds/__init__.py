"""Where lanes and streams begin and end: configured start and end points, and how a stream is cut."""
