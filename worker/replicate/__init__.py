"""The replicate unit: lanes that apply the relay log's rows at the target, each row once (docs/architecture.md).

Driver side, in the order of a run: ``start_point`` determines where replication begins, ``configured_bounds`` and
``stop_point`` where it ends; ``stream_limit`` keeps lanes from being served beyond that. ``unit`` decides which lanes
run next; ``lane_job`` runs them as one Spark job, which is registered through ``running``, and acts at their barriers.
``lane_coordinator`` collects their reports and brings them to barriers; ``alignment`` brings the lanes of two streams
to one offset. ``lag``, ``held_count`` and ``status`` compute what `query-status` shows; ``watermark_recorder`` records
that the snapshot's watermarks are cleared.

Spark-task side: ``lane`` is the body of one lane. ``join`` lets tables join a running stream.
"""
