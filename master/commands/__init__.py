"""The master's side of dmctl's commands, one module per command, by what they concern: the cluster, a source, a
task."""
