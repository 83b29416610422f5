"""Pre-checks of a task.

precheck calls the workers' checks and combines their answers; duplicate_keys adds the check over several sources, with
key_merge as its pure part.
"""
