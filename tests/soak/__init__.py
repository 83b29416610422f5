"""A soak: random writers and random faults for many minutes, then every row compared. See run.sh."""
