"""Tests that the dashboards are current, that Prometheus can read them, and that their metrics exist."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.grafana.dashboards import DASHBOARDS, FOLDER, files
from deploy.grafana.expressions import SCRAPE_LABELS, Selector, exported, selectors
from deploy.grafana.grafana_json import description
from deploy.grafana.model import WIDTH, Dashboard, Panel, Query
from shardmerge.proto.metrics import own_both, own_master, own_worker
from shardmerge.proto.metrics.family import Exporter

_NAMES = [dashboard.name for dashboard in DASHBOARDS]
_GROUPED = re.compile(r"\b(?:by|on|ignoring|group_left)\s*\(([^)]*)\)")


def _panels(dashboard: Dashboard) -> Iterator[Panel]:
    for row in dashboard.rows:
        yield from row.panels


def _queries() -> Iterator[tuple[Dashboard, Panel, Query]]:
    for dashboard in DASHBOARDS:
        for panel in _panels(dashboard):
            for query in panel.queries:
                yield dashboard, panel, query


def _stored(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def test_selectors_of_an_expression() -> None:
    text = 'sum by (task, le) (rate(a_total{x=~"b{c}",y="$z"}[5m])) / on (job) group_left (u) v offset 5m unless w == 2'
    assert selectors(text) == (
        Selector("a_total", frozenset({"x", "y"})),
        Selector("v", frozenset()),
        Selector("w", frozenset()),
    )


def test_the_files_are_current() -> None:
    """After a change: ``python -m deploy.grafana``."""
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == dict(files())


def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    expressions = [query.expression for _, _, query in _queries()]
    expressions += [variable.metric for dashboard in DASHBOARDS for variable in dashboard.variables]
    expressions += [mark["expr"] for name in _NAMES for mark in _stored(name)["annotations"]["list"]]
    rules = [
        {"record": f"expression_{number}", "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(expressions)
    ]
    file = tmp_path / "expressions.yml"
    # JSON is YAML.
    file.write_text(json.dumps({"groups": [{"name": "expressions", "rules": rules}]}), encoding="utf-8")
    ran = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(rules)} rules found" in ran.stdout


def test_every_expression_returns_data(tmp_path: Path) -> None:
    """With one series for each label of each metric: an operator that matches no series, or too many, is found."""
    expressions = sorted({query.expression for _, _, query in _queries()})
    names = [f"expression_{number}" for number in range(len(expressions))]
    rules = [
        {"record": name, "expr": re.sub(r"\$(task|source_id)", ".*", text.replace("$__rate_interval", "5m"))}
        for name, text in zip(names, expressions, strict=True)
    ]
    test = {
        "interval": "30s",
        "input_series": list(_series()),
        "promql_expr_test": [
            {
                "expr": 'group by (__name__) ({__name__=~"expression_.+"})',
                "eval_time": "8m",
                "exp_samples": [{"labels": name, "value": 1} for name in names],
            }
        ],
    }
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}), encoding="utf-8")
    file = tmp_path / "test.yml"
    file.write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "2m", "tests": [test]}), encoding="utf-8"
    )
    ran = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    output = re.sub(
        r"expression_(\d+)", lambda found: f"{found[0]} ({expressions[int(found[1])]})", ran.stdout + ran.stderr
    )
    assert ran.returncode == 0, output


_VALUES = {
    "node": ("master", "relay"),
    "type": ("capacity", "available"),
    "state": ("free", "bound", "unbound", "synced"),
    "by": ("error", "operator"),
    "cause": ("target", "idle"),
    "lane": ("0", "1"),
    "task": ("orders", "users"),
    "resumable_err": ("true", "false"),
}
_WORKERS = (("dm_worker", "w1:9262", "w1", "mysql-01"), ("dm_worker", "w2:9262", "w2", "mysql-02"))
_MASTERS = (("dm_master", "m1:9261", "w1", "mysql-01"),)


def _series() -> Iterator[dict[str, str]]:
    """Series of two workers with a source each, two tasks, and a leader."""
    for name, family in exported().items():
        daemons = {Exporter.WORKER: _WORKERS, Exporter.MASTER: _MASTERS, Exporter.BOTH: _WORKERS + _MASTERS}
        for job, instance, worker, source in daemons[family.exporter]:
            fixed = {"worker": (worker,), "source_id": (source,), **_VALUES}
            choices = [fixed.get(label, ("x",)) for label in family.labels]
            for values in itertools.product(*choices):
                labels = dict(zip(family.labels, values, strict=True)) | {"job": job, "instance": instance}
                for bound in ("0.1", "1", "+Inf") if name.endswith("_bucket") else ("",):
                    text = ",".join(
                        f'{key}="{value}"' for key, value in (labels | ({"le": bound} if bound else {})).items()
                    )
                    yield {"series": f"{name}{{{text}}}", "values": "1+1x20"}


def test_every_metric_and_label_is_exported() -> None:
    for dashboard, panel, query in _queries():
        place = f"{dashboard.name}, {panel.title}: {query.expression}"
        known = set(SCRAPE_LABELS)
        for selector in selectors(query.expression):
            assert selector.metric in exported(), place
            assert selector.labels <= {*exported()[selector.metric].labels, *SCRAPE_LABELS}, place
            known |= {*exported()[selector.metric].labels}
        grouped = {label.strip() for found in _GROUPED.findall(query.expression) for label in found.split(",")}
        assert grouped - {""} <= known, place
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= known, place


def test_every_variable_is_declared() -> None:
    for dashboard, panel, query in _queries():
        used = set(re.findall(r"\$(\w+)", query.expression)) - {"__rate_interval"}
        assert used <= {variable.name for variable in dashboard.variables}, panel.title


def test_every_metric_of_ours_is_shown() -> None:
    shown = {exported()[found.metric].name for _, _, query in _queries() for found in selectors(query.expression)}
    ours = {family.name for family in (*own_worker.FAMILIES, *own_master.FAMILIES, *own_both.FAMILIES)}
    assert ours - shown == {
        # Shown by another metric, or of no use in a graph.
        "dm_compare_running",
        "dm_lane_statements_total",
        "dm_metrics_merged_tables",
        "dm_task_auto_resume_in_seconds",
        "dm_task_runs_total",
        "dm_task_fenced_commits_total",
        "dm_worker_bound",
        "process_threads",
    }


@pytest.mark.parametrize("name", _NAMES)
def test_a_file_has_the_form_of_grafana(name: str) -> None:
    stored = _stored(name)
    variables = {variable["name"]: variable for variable in stored["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert '"uid": "${datasource}"' in json.dumps(stored)
    sources = re.findall(r'"type": "prometheus", "uid": "([^"]+)"', json.dumps(stored))
    assert set(sources) == {"${datasource}"}, "a dashboard works with any data source"
    panels = stored["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells), "no panel covers another one"
    assert max(x for x, _ in cells) < WIDTH
    for panel in panels:
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["description"]


def test_a_panel_is_described_by_its_metrics() -> None:
    for dashboard in DASHBOARDS:
        for panel in _panels(dashboard):
            for query in panel.queries:
                for found in selectors(query.expression):
                    assert exported()[found.metric].help in description(panel)
