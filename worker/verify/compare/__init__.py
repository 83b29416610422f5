"""Compares the target with its shard tables while both change.

Driver side: ``comparison`` runs one comparison. It decides with ``compared_tables`` how each table is compared and puts
the pieces of work into ``work_queue``. Spark-task side: ``task`` takes a piece and compares checksums over
``canonical_values`` through the connections in ``sides``; rows are identified by ``keys``. ``judge`` decides what a
difference means, ``repair`` re-copies rows that differ, ``messages`` reports them.
"""
