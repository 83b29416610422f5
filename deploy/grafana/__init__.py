"""Dashboards for Grafana, generated from code: ``python -m deploy.grafana`` writes ``dashboards/``.

``expressions`` reads the names of metrics from expressions of Prometheus.
"""
