"""Comparing the target with its shard tables while both change; see run.py for the whole."""
