"""What becomes an error unless an operator acts: measured in the background, shown in query-status and in metrics.

``rates`` measures speeds. ``binlog_expiry`` computes when the source may delete what is not fetched, ``relay_disk``
when the disk of the relay log is full, and ``pause`` how long a pause may last. ``figures`` is what was measured, and
``warnings`` puts it into words. Everything so far is pure; the threads that measure are ``source_watch``,
``target_clocks`` and ``worker_watch``.
"""
