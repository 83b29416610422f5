"""Follows the pages Upgrade, Limit the load, and the figures of Watch a task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

import pytest

from tests.integration.page_rig import Orders, orders, page, yaml_of
from tests.support.cluster import Json
from tests.support.daemon import Daemon
from tests.support.wait import until

pytestmark = pytest.mark.turns

_MACHINE = re.compile(r"^systemctl (stop|start) dm-(?:master|worker) +# on the machine of ([\w-]+)$")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    with orders(tmp_path_factory.mktemp("pages"), "mariadb", workers=3, masters=2) as found:
        for source, worker in zip(found.sources, ("worker-1", "worker-2"), strict=True):
            found.create_source(source, "-w", worker)
        yield found


def test_limit_the_load(made: Orders) -> None:
    cluster, reader, name = made.cluster, made.reader, "limit-the-load"
    text = made.task(1, 2)
    made.write(f"{text}snapshot: {{chunk-rows: 20, rows-per-second: 10}}\n")
    reader.command("dmctl start-task orders.yaml")
    cluster.wait_subtasks("orders", lambda sub: sub.unit == "Load" and sub.stage == "Running", "copies")
    [of_copy] = yaml_of(name, "1.")
    made.write(f"{text}{of_copy}\n")
    reader.follow(page(name), "1.")
    made.wait_replicating()  # at 10 rows a second it would take a minute
    [of_lanes] = yaml_of(name, "2.")
    made.write(f"{text}{of_copy}\n{of_lanes}\n")
    for section in ("2.", "3.", "4."):
        reader.follow(page(name), section)
    made.wait_replicating()
    subtasks = cluster.wait_subtasks("orders", lambda sub: bool(sub.raw["sync"]["lanes"]), "has lanes")
    assert [len(sub.raw["sync"]["lanes"]) for sub in subtasks.values()] == [1, 1]
    made.change()
    made.judge()
    # The way back.
    made.write(text)
    reader.command("dmctl update-task orders.yaml")
    made.wait_replicating()


def test_the_figures_to_watch(made: Orders) -> None:
    """Every figure of the page is in the JSON of query-status."""
    text = page("watch-a-task").read_text(encoding="utf-8")
    section = text[text.index("## Figures to watch") : text.index("## What the lanes do")]
    paths = [
        path for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for path in re.findall("`([^`]+)`", row)
    ]
    assert len(paths) == 10
    answer = made.reader.command("dmctl query-status orders")
    assert answer is not None
    for source in cast("list[Json]", answer.json["sources"]):
        place: Json = source["sourceStatus"]["relayStatus"]
        for path in paths:
            *folders, figure = path.replace("[]", "").split(".")
            if folders:
                place = source
            for folder in folders:
                inner: object = place[folder]
                place = cast("Json", cast("list[object]", inner)[0] if isinstance(inner, list) else inner)
            assert figure in place, path
    made.reader.follow(page("watch-a-task"), "Figures to watch")


def test_upgrade(made: Orders) -> None:
    cluster, installed = made.cluster, list[str]()

    def systemctl(line: str) -> None:
        found = _MACHINE.match(line)
        assert found is not None, line
        [daemon] = [one for one in cluster.daemons if one.name == found.group(2)]
        if found.group(1) == "stop":
            daemon.terminate()
            made.change()
        else:
            before = registrations(daemon)
            daemon.start()
            if daemon.kind == "worker":
                until(lambda: registrations(daemon) > before, "the worker is listed as free")

    def registrations(daemon: Daemon) -> int:
        return daemon.log.read_bytes().count(b"registered ")

    reader = made.reading({"systemctl": systemctl, "pip": installed.append})
    made.wait_replicating()
    for section in ("1.", "2.", "3.", "4."):
        reader.follow(page("upgrade"), section)
    assert len(installed) == 5
    assert cluster.worker_of("mysql-01").name == "worker-3"
    made.judge()
    until(lambda: all(daemon.alive for daemon in cluster.daemons), "all run")
