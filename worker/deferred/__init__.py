"""Secondary indexes that a target table of ours gets after its load, in one sorted pass, instead of row by row."""
