"""Rows that the target refuses, held at the target with all that follows on their keys until an operator decides."""
