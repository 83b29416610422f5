"""Answers where the time of a subtask goes.

``sample`` makes the figures of the time between two samples, and those of all subtasks for `dmctl top`, pure;
``target_look`` asks the target once who holds the locks that lanes wait for; ``diagnose`` takes the samples. What the
figures mean is decided by the master (master/diagnosis).
"""
