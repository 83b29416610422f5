"""The task file."""
