"""Answers where the time of a subtask goes.

``sample`` makes the figures of the time between two samples, pure; ``target_look`` asks the target once who holds the
locks that lanes wait for; ``diagnose`` takes the samples. ``overview`` makes the figures of all subtasks for `dmctl
top`, pure. What the figures mean is decided by the master (master/diagnosis).
"""
