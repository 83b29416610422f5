"""The snapshot unit: copies a source's tables chunk by chunk while they change, nearly without locks.

Driver side, in the order of the work: ``unit`` runs everything. ``table_planner`` asks the source where to cut a table
into ``chunks`` (ordered by ``key_order``); ``chunk_store`` records them at the target as ``chunk_records``.
``chunk_planner`` does both in a thread. ``dispenser`` hands the chunks to the readers at the pace of ``limits``, and
not while ``load_monitor`` finds the source too busy; ``progress`` counts what they load. ``statement_watch`` finds the
statements after which no chunk of a table is valid (``interrupting_statements`` decides which these are);
``chunk_key`` decides whether the rest can be copied after one. At the end ``handover`` computes from the high
watermarks where the stream begins and which changes the chunks hold already; ``watermark_gtids`` adds the watermarks'
GTID sets.

Spark-task side: ``reader`` reads a chunk through ``source``, brings it to its high watermark and loads it.
"""
