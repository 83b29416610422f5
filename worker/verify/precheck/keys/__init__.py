"""Pre-checks of equal keys in several shard tables.

``answers`` answers the master's requests. ``merged_keys`` determines the keys of a target table as its shard tables
have them. ``key_samples`` compares samples of them, ``key_proof`` reads all of them in one order.
"""
