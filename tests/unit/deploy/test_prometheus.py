"""Tests that every alert has tests, a runbook and metrics that exist, and runs the tests of the alerts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from ruamel.yaml import YAML

from deploy.grafana.expressions import SCRAPE_LABELS, exported, selectors
from deploy.prometheus.runbooks import DEFAULT, checked
from shardmerge.proto.metrics.catalogue import CATALOGUE
from shardmerge.proto.metrics.family import MetricKind

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "shardmerge.rules.yml"
RUNBOOKS = ROOT / "docs" / "runbooks"
TEST_FILES = sorted((FOLDER / "tests").glob("*.yml"))
# What other programs export: Prometheus itself, and etcd.
FOREIGN = {"up": {"job"}, "etcd_mvcc_db_total_size_in_bytes": set[str](), "etcd_server_quota_backend_bytes": set[str]()}
SECTIONS = [
    "What it means for the data",
    "How to look",
    "What to do",
    "How to see that it is repaired",
    "When to call for help",
]
# Commands after which data may be missing at the target, or cannot be had again.
DESTRUCTIVE = re.compile(
    r"dmctl (binlog skip|quarantine drop|shard-ddl-lock unlock|stop-task|operate-source stop|offline-member)"
    r"|--remove-meta"
)
CONSEQUENCE = re.compile(r"\b(lose|loses|lost|lacks?|missing|out of use|only while|copied again)\b")


def _loaded(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))


def _rules() -> list[dict[str, Any]]:
    return [rule for group in _loaded(RULES)["groups"] for rule in group["rules"]]


ALERTS = {str(rule["alert"]): rule for rule in _rules() if "alert" in rule}
RECORDED = {str(rule["record"]) for rule in _rules() if "record" in rule}


@dataclass(frozen=True, slots=True)
class Case:
    """What a test expects of an alert. ``begins_at_1``: a counter's series has no sample before its first one, or a
    restart made a gap, and the sample after it is 1. ``labels``: of the alert that fires."""

    alert: str
    fires: bool
    begins_at_1: bool
    labels: frozenset[str]


def _cases() -> list[Case]:
    found: list[Case] = []
    for path in TEST_FILES:
        for test in _loaded(path)["tests"]:
            begins = any(
                "_total{" in series["series"] and re.search(r"_(x\d+)? 1(x|\b)", series["values"])
                for series in test["input_series"]
            )
            for query in test["promql_expr_test"]:
                [alert] = re.findall(r'^ALERTS\{alertname="(\w+)",alertstate="firing"\}$', query["expr"])
                assert test["name"].startswith(f"{alert}: "), "the name of a test begins with its alert"
                labels = [label for sample in query["exp_samples"] for label in re.findall(r"(\w+)=", sample["labels"])]
                found.append(Case(alert, bool(query["exp_samples"]), begins, frozenset(labels)))
    return found


CASES = _cases()


@pytest.mark.parametrize("path", TEST_FILES, ids=[path.stem for path in TEST_FILES])
def test_the_alerts_fire_when_they_should(path: Path) -> None:
    ran = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-tls.yml"])
def test_the_configurations_are_accepted(name: str) -> None:
    # Certificates that are named do not exist here.
    ran = subprocess.run(
        ["promtool", "check", "config", "--syntax-only", FOLDER / name], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    jobs = {job["job_name"] for job in _loaded(FOLDER / name)["scrape_configs"]}
    assert {"dm_master", "dm_worker"} <= jobs, "the rules name these jobs"
    assert [RULES.name] == _loaded(FOLDER / name)["rule_files"]


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_case_that_fires_and_one_that_does_not(alert: str) -> None:
    cases = [case for case in CASES if case.alert == alert]
    assert any(case.fires for case in cases)
    assert any(not case.fires for case in cases)
    counters = [name for name in _names(alert) if name in exported() and exported()[name].kind is MetricKind.COUNTER]
    if counters:
        assert any(case.fires and case.begins_at_1 for case in cases), "a series that begins at 1"


def test_every_case_is_of_an_alert() -> None:
    assert {case.alert for case in CASES} == ALERTS.keys()


def _names(alert: str) -> set[str]:
    return {selector.metric for selector in selectors(str(ALERTS[alert]["expr"]))}


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule.get("alert", rule.get("record")))
def test_every_metric_and_label_is_exported(rule: dict[str, Any]) -> None:
    found = selectors(str(rule["expr"]))
    assert found
    for selector in found:
        if selector.metric in RECORDED:
            continue
        if selector.metric in FOREIGN:
            assert selector.labels <= FOREIGN[selector.metric]
            continue
        assert selector.metric in exported(), selector.metric
        assert selector.labels <= {*exported()[selector.metric].labels, *SCRAPE_LABELS}, selector


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_names_what_it_is_about(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["labels"]["level"] in {rule["labels"]["severity"], "emergency"}
    notes = cast("dict[str, str]", rule["annotations"])
    assert notes.keys() == {"summary", "description", "runbook_url"}
    text = notes["summary"] + notes["description"]
    used = set(re.findall(r"\$labels\.(\w+)", text))
    for case in CASES:
        if case.alert == alert and case.fires:
            # A label that the alert has not would be an empty text in its annotations.
            assert used <= case.labels
            assert {"task", "source_id", "instance"} & case.labels <= used, "the text names task, source and daemon"


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_runbook(alert: str) -> None:
    assert ALERTS[alert]["annotations"]["runbook_url"] == f"{DEFAULT}/runbooks/{alert}/"
    text = (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert f"({alert}.md)" in (RUNBOOKS / "index.md").read_text(encoding="utf-8")


def test_the_site_has_the_address_of_the_rules() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert f"site_url: !ENV [SHARDMERGE_DOCS_URL, '{DEFAULT}/']" in text
    assert "use_directory_urls" not in text, "the pages are folders, as the rules name them"


def _written(*arguments: str, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "deploy.prometheus", *arguments],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_rules_are_written_with_an_address(tmp_path: Path) -> None:
    rules = RULES.read_text(encoding="utf-8")
    assert _written(SHARDMERGE_DOCS_URL="") == rules
    place = tmp_path / "out.yml"
    _written("--docs-url", "https://docs.example.com/shardmerge/", "--output", str(place))
    text = place.read_text(encoding="utf-8")
    assert text == _written(SHARDMERGE_DOCS_URL="https://docs.example.com/shardmerge")
    urls = re.findall(r"^ +runbook_url: (\S+)$", text, re.MULTILINE)
    assert urls == [f"https://docs.example.com/shardmerge/runbooks/{alert}/" for alert in ALERTS]
    assert text.replace("https://docs.example.com/shardmerge/runbooks", f"{DEFAULT}/runbooks") == rules
    ran = subprocess.run(["promtool", "check", "rules", place], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "url", ["", "docs", "javascript:alert(1)", "https://", "https://u:p@h", "https://h/\n x", "https://h/'"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        checked(url)


def _sentences(text: str) -> list[str]:
    """Of a page: blocks of code belong to the text before them."""
    return re.split(r"(?<=[.:])\s+(?=[A-Z0-9])|\n\n(?=\S)", text)


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("DM_*.md")), ids=lambda path: path.stem)
def test_a_way_out_that_may_lose_data_says_so(path: Path) -> None:
    for sentence in _sentences(path.read_text(encoding="utf-8")):
        if DESTRUCTIVE.search(" ".join(sentence.split())):
            assert CONSEQUENCE.search(sentence), sentence


@pytest.mark.parametrize("alert", ["DM_stalled", "DM_snapshot_stalled", "DM_checkpoint_old"])
def test_the_pages_have_the_time_after_which_an_alert_fires(alert: str) -> None:
    """An age that is compared grows before the time of `for` begins: both count."""
    rule = ALERTS[alert]
    [limit] = re.findall(r"_(?:since_progress|checkpoint_age_seconds)\) > (\d+)", str(rule["expr"]))
    minutes = int(limit) // 60 + int(str(rule["for"]).removesuffix("m"))
    page = (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8").partition("\n## ")[0]
    index = (RUNBOOKS / "index.md").read_text(encoding="utf-8").splitlines()
    [row] = [line for line in index if f"({alert}.md)" in line]
    for text in (page, row):
        assert re.findall(r"for (\d+) minutes", text) == [str(minutes)]
    silent_at_lock = "unless max by (task, source_id) (dm_syncer_shard_lock_resolving) == 1" in str(rule["expr"])
    assert ("(DM_pending_DDL.md)" in page) == silent_at_lock


def test_every_runbook_has_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"index"} == ALERTS.keys()


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_runbook_names_commands_metrics_and_errors_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    reference = (ROOT / "docs" / "reference" / "dmctl.md").read_text(encoding="utf-8")
    commands = set(re.findall(r"^### dmctl (.+)$", reference, re.MULTILINE))
    for line in re.findall(r"dmctl ((?:[a-z-]+ ?)+)", text):
        assert any(f"{line} ".startswith(f"{command} ") for command in commands), f"dmctl {line}"
    for command, rest in re.findall(r"dmctl ([a-z-]+(?: (?:unlock|list|retry|drop|skip|init))?)([^`\n]*)", text):
        of_command = reference.partition(f"### dmctl {command}\n")[2].partition("\n### ")[0]
        for option in re.findall(r"(?<!\S)--[a-z-]+", rest):
            assert option in of_command, f"dmctl {command} {option}"
    for name in re.findall(r"\bdm_[a-z_]+\b", text):
        known = name in exported() or (name in CATALOGUE and not CATALOGUE[name].absent)
        assert known or name in {"dm_master", "dm_worker"}, name
    errors = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    for code, name in re.findall(r"\[(\d{5})\s([\w-]+)\]", text):
        assert f"\n### {code} {name}\n" in errors
