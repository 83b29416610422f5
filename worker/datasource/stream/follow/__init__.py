"""Follows the sources in the process of a query: where the stream begins, and where each batch ends."""
