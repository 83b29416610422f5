"""Step 3 of the relay: serve the relay log to readers and translate positions.

log_reader is the readers' interface. subscription yields blocks of events, group_blocks those whose bytes differ from
the log's; local_files lets a lane on the same machine read the files itself. locate translates positions of the source
or GTID sets to relay offsets and back, commit_walk finds commits; query_event reads a statement's event again.
"""
