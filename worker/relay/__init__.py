"""The relay of one source: its binlog copied to disk as it is, and served to any number of readers.

In:  dump (packets) → reader → scan, or groups event by event → appender → log: segments, each with its index.
Out: relay, which the worker holds: served (places, waits, streams), reach (where the log begins), keeper (its disk).
"""
