"""Damaged binlog events for the decoder: each must give rows or a coded error, in bounded time and memory.

``python -m tests.fuzz --events 1000000`` runs a million; see ``--help``. Event number n of a seed is always the same.
"""
