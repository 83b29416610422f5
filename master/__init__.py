"""dm-master: decides which worker does what. All of its state is in etcd.

main starts server, which puts the parts together. service hands each gRPC call to a command in commands/. A command
reads the records (state), decides, stores the decision in one transaction (store) and waits until the workers have
acted on it (workers/). While this master leads (leader/), the scheduler places sources on workers by placement, and the
locks of sharding DDLs are resolved (ddl_lock/). precheck/ combines the workers' answers to the checks of a task.
stored_secrets and secret_key_check keep the passwords in etcd encrypted. RECORDS.md documents the records.
"""

if __name__ != "shardmerge.master":  # two names would be two copies of every class
    raise ImportError("import shardmerge.master, not master")
