"""Runs a real Prometheus with the project's alert rules against daemons of a test."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.daemon import Daemon
from tests.support.ports import free_port
from tests.support.server import Server

Sample = tuple[float, float]

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "shardmerge.rules.yml"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that fires."""

    name: str
    labels: Mapping[str, str]
    description: str


def quick(rules: str) -> str:
    """The rules with a second for each minute of `for` and of a lock's age, and a minute for each hour: a test cannot
    wait for so long. Windows and other limits stay."""
    rules = re.sub(r"(dm_ddl_lock_age_seconds\) > )(\d+)", lambda found: f"{found[1]}{int(found[2]) / 60:g}", rules)
    return re.sub(r"(?m)^(\s+for: \d+)([mh])$", lambda found: found[1] + {"m": "s", "h": "m"}[found[2]], rules)


class Prometheus(Server):
    """Scrapes the daemons each second, and evaluates the rules each second."""

    def __init__(self, directory: Path, masters: Sequence[Daemon], workers: Sequence[Daemon]) -> None:
        super().__init__(directory)
        self._jobs = {"dm_master": masters, "dm_worker": workers}
        self._address = f"127.0.0.1:{free_port()}"

    def start(self) -> Prometheus:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "rules.yml").write_text(quick(RULES.read_text(encoding="utf-8")), encoding="utf-8")
        # All daemons of a cluster have the same key.
        [token] = {daemon.metrics_token for daemons in self._jobs.values() for daemon in daemons}
        (self.directory / "token").write_text(f"{token}\n", encoding="utf-8")
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {
                    "job_name": job,
                    "static_configs": [{"targets": [daemon.http for daemon in daemons]}],
                    "authorization": {"credentials_file": str(self.directory / "token")},
                }
                for job, daemons in self._jobs.items()
            ],
        }
        # JSON is YAML.
        (self.directory / "prometheus.yml").write_text(json.dumps(configuration), encoding="utf-8")
        self._launch(
            f"prometheus on {self._address}",
            [
                "prometheus",
                f"--config.file={self.directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.directory / 'data'}",
                f"--web.listen-address={self._address}",
                "--log.level=warn",
            ],
        )
        return self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except urllib.error.URLError:
            return False

    def firing(self) -> list[Alert]:
        found = self._get("alerts")["alerts"]
        return [
            Alert(each["labels"]["alertname"], each["labels"], each["annotations"]["description"])
            for each in found
            if each["state"] == "firing"
        ]

    def value(self, expression: str) -> list[Any]:
        """The result of an instant query."""
        return self._get(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]

    def number(self, expression: str) -> float:
        """The value of the only series of an instant query."""
        [found] = self.value(expression)
        return float(found["value"][1])

    def ranges(self, expression: str, begin: float, end: float, step: float) -> list[Any]:
        """The result of a range query."""
        query = urllib.parse.urlencode({"query": expression, "start": begin, "end": end, "step": step})
        return self._get(f"query_range?{query}")["result"]

    def samples(self, series: str, seconds: float = 3600.0) -> dict[tuple[tuple[str, str], ...], list[Sample]]:
        """The raw samples of the last seconds, by the labels of their series: (Unix time of the scrape, value)."""
        return {
            tuple(sorted(found["metric"].items())): [(float(at), float(value)) for at, value in found["values"]]
            for found in self.value(f"{series}[{round(seconds * 1000)}ms]")
        }

    def values(self, series: str, seconds: float) -> list[Sample]:
        """The raw samples of the last seconds of one series; [] without one."""
        found = list(self.samples(series, seconds).values())
        assert len(found) <= 1, found
        return found[0] if found else []

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}", timeout=30) as answer:
            return json.load(answer)["data"]
