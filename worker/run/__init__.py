"""One run of a subtask: worker/run/run.py goes from phase to phase, each a module beside it."""
