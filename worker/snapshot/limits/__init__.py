"""The limits of a snapshot: rows and bytes per second, and the load of the source at which no chunk begins.

``rate_limiter`` computes when the next chunk may begin. ``source_load`` decides whether the source is too busy.
``reader_times`` counts how long readers wait for these limits, and what else they spend their time on.
"""
