"""Tables that join a running subtask with their history.

``task_update`` determines through ``table_changes`` which tables an update of the task adds; ``released_tables`` and
``replay`` bring back shard tables whose sharding DDL has run. ``table_join`` copies such tables and follows their
changes in a short stream of their own. ``unit`` runs it alongside the subtask's own lanes until these take the tables
over; ``stream_state`` computes what is recorded of both streams.
"""
