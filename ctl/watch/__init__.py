"""`query-status --watch`: a live view of a task."""
