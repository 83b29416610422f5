"""What concerns the process of a daemon as a whole."""
