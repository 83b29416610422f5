"""The metrics that both daemons export.

``family`` declares what a metric is, ``dm_syncer``, ``dm_other``, ``own_worker`` and ``own_master`` list all of them,
and ``catalogue`` joins the lists. ``distribution`` counts observations in buckets. ``exposition`` writes samples as
Prometheus' text format, ``tables`` bounds the number of series for each table, ``certificates`` and ``process`` make
samples of both daemons, and ``reference`` generates the page docs/reference/metrics.md. Nothing here knows a daemon.
"""
