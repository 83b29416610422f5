"""The phases of a run: the first start, the copy, replication, the end."""
