"""dm-master's metrics: pure functions from a frozen picture of the master's memory to samples.

``collect`` has the picture and makes the samples. ``probes`` takes the picture and decides whether the master is ready.
Nothing here calls etcd or a worker: the leader's loops read all records each second, and the last ones are kept.
"""
