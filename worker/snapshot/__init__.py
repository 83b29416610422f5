"""The snapshot unit: copies a source's tables chunk by chunk while they change, nearly without locks.

Driver side, in the order of the work: ``unit`` runs everything. ``table_planner`` asks the source where to cut a table
into ``chunks`` (ordered by ``key_order``); ``chunk_store`` records them at the target as ``chunk_records``.
``dispenser`` hands them to the readers at the pace that ``rate_limiter`` and ``load_monitor`` (with ``source_load``)
allow; ``progress`` counts what they load. ``blocking_statements`` decides under which DDL statements a chunk must be
read again. At the end ``handover`` computes from the high watermarks where the stream begins and which changes the
chunks hold already; ``watermark_gtids`` adds the watermarks' GTID sets.

Spark-task side: ``reader`` reads a chunk through ``source``, brings it to its high watermark and loads it.
"""
