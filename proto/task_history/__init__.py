"""The history of a task: what happened to it, as entries in etcd that masters and workers write.

``event`` is what happens, ``pending`` merges repeated events and limits their number, ``record`` is the stored form,
``secrets`` masks what it must not have, ``recorder`` writes it in the background. master/RECORDS.md documents the
records, ``master/task_history/`` reads and trims them.
"""
