"""Pre-checks of a task.

precheck calls the workers' checks and combines their answers; two checks are over several sources: shard_checks, and
duplicate_keys with key_merge as its pure part. asked_sources has what both share.
"""
