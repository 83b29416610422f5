"""Commands that concern one task.

operate starts, stops, pauses, resumes and checks tasks; forget_task also removes their records; update changes a
running one; status reports; rules and ddl_preview explain; binlog, binlog_schema, quarantine and ddl_locks let an
operator decide where a task has stopped; compare compares sources with the target.
"""
