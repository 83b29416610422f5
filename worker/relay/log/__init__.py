"""Step 2 of the relay: the relay log on disk, its segments, its index and its recovery.

relay_log holds the generation (relay.json) and the segments; each segment has an index of index_records. files
names their files and writes those of the last segment. group_walker determines where groups begin and end (fast_scan
does it for ordinary events; walk_state is what they exchange), with xa_tracker and prepared_groups for XA, and
binlog_state for MariaDB. recovery opens the files after a crash.
"""
