"""Requests of the master about a subtask or a source; one module per command."""
