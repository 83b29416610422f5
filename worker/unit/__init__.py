"""The contract of a process unit (snapshot, replicate), what one run of a unit works with, and jobs that grow."""
