"""The relay of one source: copies its binlog to disk unchanged, and serves it to any number of readers.

1. fetch/: fetcher runs the thread; dump_connection receives packets, dump_start determines where a dump begins,
   appender stores the events.
2. log/: group_walker finds group ends event by event, fast_scan does so for ordinary events; relay_log holds the
   segments, each with its index; recovery opens them after a crash.
3. serve/: log_reader is the readers' interface; locate finds positions, subscription serves blocks of events.

relay is the facade that the worker uses. start_policy determines where the log begins, retention (with purge_policy)
syncs and purges its disk, model has the values that leave the relay, source_clock the source's clock and end.
"""
