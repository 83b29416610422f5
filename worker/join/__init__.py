"""Tables that join a running subtask with their history."""
