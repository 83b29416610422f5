"""Changes that are not applied: held after the target refused them, or skipped by an operator.

held_changes     which changes of a batch are held, and their net change (pure)
held_store       their records at the target
skipped_events   row events that an operator skips, and their rows (pure)
skipped_store    the records of skipped rows
"""
