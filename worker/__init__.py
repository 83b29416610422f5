"""dm-worker: does; one source each: relay, snapshot, replicate, and the Spark driver."""
