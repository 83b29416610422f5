"""Renames of target tables, for `update-task --rename-target`.

target_renames   the record of a rename, and the transactions in which the other records follow it
rename_target    the steps of a rename, and what follows when a process was killed between them
"""
