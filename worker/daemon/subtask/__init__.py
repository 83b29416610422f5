"""A subtask's life at the worker, and one run of it.

``subtask`` makes the stage transitions; for each run it makes a ``run``, which goes from phase to phase with
``run_resources`` (made from ``source_context``): ``begin`` (phase NEW), ``snapshot_phase``, ``replicate_phase``,
``finish``. ``run_tables`` makes what several phases need of the tables. ``relay_hold`` is what a subtask may still read
of the relay log.
"""
