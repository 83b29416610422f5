"""The soak test: random writers and random faults for many minutes, then a comparison of every row. See run.sh."""
