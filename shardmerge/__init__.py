"""shardmerge: merges sharded MySQL and MariaDB tables into one target.

The four packages are links to the folders at the top level of the repository.
"""
