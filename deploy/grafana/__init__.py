"""Dashboards for Grafana, generated from code: ``python -m deploy.grafana`` writes ``dashboards/``.

``model`` is what a dashboard shows; ``overview``, ``task``, ``source`` and ``cluster`` are the dashboards;
``grafana_json`` writes them in the form in which Grafana imports them, and ``dashboards`` has all of them.
``expressions`` reads the names of metrics from expressions of Prometheus. All but ``__main__`` and ``dashboards`` is
pure.
"""
