"""dm-worker: copies and follows one source at a time. It runs the relay, the snapshot, the lanes and the Spark
driver."""

if __name__ != "shardmerge.worker":  # two names would be two copies of every class
    raise ImportError("import shardmerge.worker, not worker")
