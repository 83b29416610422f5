"""The history of tasks at the master: what it records, samples, trims and answers.

``commands`` (with ``command_log``) and ``steps`` turn what a master does into events; ``readings`` and ``blocks`` turn
the workers' status into samples; ``bounds`` decides what is removed; ``keeper`` samples and trims at the leader. The
entries and their writer are ``proto/task_history/``.
"""
