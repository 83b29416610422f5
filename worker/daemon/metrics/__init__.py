"""dm-worker's metrics: pure functions from a frozen picture of the worker's memory to samples.

``figures`` is the picture, ``run_counts`` counts the ends of a subtask's runs, and ``collect`` makes the samples, with
``subtasks`` and ``lanes`` for its parts. Nothing here calls a server, another daemon or Spark; the daemon takes the
picture.
"""
