"""``dm-worker pack``: an archive of the environment of dm-worker, which Spark sends to its executors.

``command`` reads the command line and lists the files: ``interpreter`` those of Python, ``packages`` those of
shardmerge and of what it needs, which ``requirements`` finds. ``archive`` writes them.
"""
