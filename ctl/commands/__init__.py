"""dmctl's commands, one file per family. Each command's function returns the exit code."""
