"""Calls from the master to workers, and waits for their stages."""
