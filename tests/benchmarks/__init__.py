"""The benchmark that run.sh starts: throughput, lag and memory, compared with what the target can do alone."""
