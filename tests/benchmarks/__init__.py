"""The benchmark behind run.sh: how fast, how late and how large, beside what the target itself can do."""
