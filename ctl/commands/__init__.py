"""dmctl's commands, one module per command, by what they concern: a task, a source, the cluster, this machine alone.

Each command's function returns the exit code.
"""
