"""The contract of a process unit (snapshot, replicate) and what one run of a unit works with."""
