"""Simulates sharding DDLs: random histories, faults and schedules around the program's own decisions.

source_log → worker_state → worker_reports, statement_steps, agent_steps → worker_steps: one source's worker, also for
the walks of tests/unit/shard_ddl/ through all states. target, etcd → world: everything together. histories → runs →
__main__.
"""
