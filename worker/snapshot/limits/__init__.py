"""The limits of a snapshot: rows and bytes per second, and the load of the source at which no chunk begins.

``rate_limiter`` computes when the next chunk may begin. ``load_monitor`` asks the source for the values of
``source_load`` and holds chunks back while one is above its limit.
"""
