"""The master's side of dmctl's commands, one module per command, by what they concern: the cluster, a source, a
task. ``each_source`` is common to those that answer for each source."""
