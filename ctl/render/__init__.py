"""Answers of the master as tables for a terminal."""
