"""The rules of `transforms`: model is the block of a task file, python_function the names and types in it."""
