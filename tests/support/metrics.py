"""Reads the HTTP endpoint of a daemon, as Prometheus and a load balancer do."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.support.daemon import Daemon


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: status, headers by lower-case name, text."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """One value of a metric."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Scrape:
    """All series of one scrape."""

    series: tuple[Series, ...]

    def of(self, name: str, **labels: str) -> list[Series]:
        """Return the series of a metric that have ``labels``."""
        return [each for each in self.series if each.name == name and labels.items() <= each.labels.items()]

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of the series of a metric that have ``labels``."""
        return sum(each.value for each in self.of(name, **labels))

    def one(self, name: str, **labels: str) -> float:
        """Return the value of the only such series."""
        [found] = self.of(name, **labels)
        return found.value


def request(
    daemon: Daemon, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Page:
    """Make one request; ``body``: sent with its length. ``headers``: None for those of a known caller."""
    if headers is None:
        headers = {} if path != "/metrics" else {"Authorization": f"Bearer {daemon.metrics_token}"}
    host, _, port = daemon.http.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return Page(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode())
    finally:
        connection.close()


def scrape(daemon: Daemon) -> Scrape:
    """Return the metrics of a daemon."""
    page = request(daemon, "/metrics")
    assert page.status == 200, page
    return parse(page.text)


def parse(text: str) -> Scrape:
    """Return the series of a text."""
    return Scrape(
        tuple(
            Series(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        )
    )
