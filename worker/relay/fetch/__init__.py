"""Step 1 of the relay: fetch the source's binlog and append it to the relay log.

fetcher runs the thread: it opens a dump_connection, reads source_state, plans the start with dump_start and stores
events with appender, while end_watch checks the source's end. server_id chooses the replica's id, file_times finds a
file by time. stored_tail checks that the source still has what was read last; server_change and errant_gtids check
another server before the source's address changes.
"""
