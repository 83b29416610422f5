"""Step 5 of a DDL: the subtask's side of the sharding-DDL locks.

parked_queue    the parked shard tables of one run, shared by the drivers and the lock agent
lock_inputs     what is recorded at the target about the subtask's shard tables
lock_protocol   what a source publishes about them, and what a lock asks of it (pure)
later_statements reads what follows the statements at which tables are parked; way_back: whether that ends a conflict
ended_conflicts finds the parked tables whose conflict has ended (optimistic)
lock_client     publishes it in etcd and reads the locks that the master has decided on
lock_agent      runs all of this in a thread of its own
"""
