"""The HTTP endpoint of a daemon: metrics for Prometheus and answers for probes.

``probes`` is what the daemon answers from, ``routes`` makes the answers, ``hosts`` decides for which names,
``connection`` limits each connection, ``acceptor`` their number, ``server`` runs them in a thread, and ``loops``
measures the age of the daemon's loops.
"""
