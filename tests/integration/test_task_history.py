"""Tests `dmctl history` against what was done to a task: commands, stages, an error, DDLs, a killed leader."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support.wait import until
from tests.support.world import Family, World

_TASK = "chronicle"
Entry = dict[str, Any]


def _history(world: World, *options: str) -> dict[str, Any]:
    return world.cluster.dmctl("history", _TASK, *options).json


def _entries(world: World, *options: str) -> list[Entry]:
    return list(_history(world, *options)["entries"])


def _wait_for(world: World, holds: Callable[[list[Entry]], object], what: str) -> list[Entry]:
    """The entries, once they are written: that happens after the event."""
    last: list[Entry] = []

    def found() -> list[Entry] | None:
        nonlocal last
        last = _entries(world)
        return last if holds(last) else None

    try:
        return until(found, what, 15, every=0.1)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{json.dumps(last, indent=1)}") from None


def _texts(entries: list[Entry], kind: str, source: str = "") -> list[str]:
    return [
        entry["text"] for entry in entries if entry["kind"] == kind and (not source or entry["sources"] == [source])
    ]


def _alter(family: Family, clause: str) -> None:
    for _, server in family.sources:
        for table in range(1, family.tables + 1):
            server.execute(f"ALTER TABLE {family.name}_01.order_{table:02d} {clause}")


def test_the_history_is_what_happened(world: World) -> None:
    cluster, (first, server) = world.cluster, world.sources[0]
    family = world.family(_TASK)
    family.create(20)
    cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    cluster.wait_replicating(_TASK)
    _pause_and_resume(world)
    _alter(family, "ADD COLUMN remark VARCHAR(20)")
    cluster.wait_caught_up(_TASK, dict(world.sources))
    _sharding_ddl(world)
    server.execute(
        f"CREATE TABLE {_TASK}_01.parent (id BIGINT PRIMARY KEY)",
        "SET SESSION foreign_key_checks = 0",
        f"ALTER TABLE {_TASK}_01.order_01 ADD FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE",
    )
    until(lambda: cluster.subtasks(_TASK)[first].stage == "Paused", "the statement is refused", 30, every=0.2)
    _error(world, first)
    before = _entries(world)
    cluster.masters[0].kill()
    cluster.masters[0].start()
    cluster.dmctl("binlog", "skip", _TASK, "-s", first)
    cluster.wait_caught_up(_TASK, dict(world.sources))
    _skipped(world, before, first)
    cluster.dmctl("stop-task", _TASK)
    _stopped(world)


def _pause_and_resume(world: World) -> None:
    world.cluster.dmctl("pause-task", _TASK)
    world.cluster.wait_paused(_TASK)
    world.cluster.dmctl("resume-task", _TASK)
    world.cluster.wait_replicating(_TASK)
    wanted = [
        "New → Running: as decided",
        "the tables are copied, replication begins",
        "Running → Paused: as decided",
        "Paused → Running: as decided",
    ]
    ids = [source_id for source_id, _ in world.sources]
    entries = _wait_for(
        world, lambda found: all(_texts(found, "stage", each) == wanted for each in ids), "all stages are recorded"
    )
    assert _texts(entries, "command") == ["start-task", "pause-task", "resume-task"]
    commands = [entry for entry in entries if entry["kind"] == "command"]
    assert {(entry["actor"], entry["failed"], tuple(entry["sources"])) for entry in commands} == {
        ("127.0.0.1", False, ())
    }
    # The order is that of what happened, though several processes have written it.
    order = [(entry["kind"], entry["text"]) for entry in entries]
    assert order.index(("command", "pause-task")) < order.index(("stage", "Running → Paused: as decided"))
    assert order.index(("stage", "Running → Paused: as decided")) < order.index(("command", "resume-task"))
    # A command and what follows from it have the id that the log lines have, too.
    caused = {
        (entry["text"], entry["operation"])
        for entry in entries
        if entry["kind"] == "stage" or entry["kind"] == "command"
    }
    [paused] = {operation for text, operation in caused if text == "pause-task"}
    [resumed] = {operation for text, operation in caused if text == "resume-task"}
    assert paused != resumed
    assert {operation for text, operation in caused if text == "Running → Paused: as decided"} == {paused}
    assert {operation for text, operation in caused if text == "Paused → Running: as decided"} == {resumed}
    workers = {source_id: world.cluster.worker_of(source_id).name for source_id in ids}
    for entry in entries:
        if entry["kind"] == "stage":
            assert entry["writer"] == f"worker {workers[entry['sources'][0]]}"
            assert entry["incarnation"]
    running = [entry for entry in entries if entry["text"].startswith("Running")]
    assert all(int(entry["epoch"]) > 0 for entry in running)


def _sharding_ddl(world: World) -> None:
    """The lock's life, and what each source did with its statements."""
    entries = _wait_for(
        world, lambda found: any("lock closed" in text for text in _texts(found, "ddl")), "the lock is closed"
    )
    target = f"`{_TASK}`.`orders`"
    ddls = [entry for entry in entries if entry["kind"] == "ddl"]
    assert {entry["target"] for entry in ddls} == {target}
    lock = [entry["text"] for entry in ddls if not entry["sources"]]
    assert lock[0].startswith("lock opened")
    assert any("runs it" in text for text in lock)
    assert lock[-2:] == ["released: the shard tables continue", "lock closed: all shard tables have continued"]
    for source_id, _ in world.sources:
        own = [entry for entry in ddls if entry["sources"] == [source_id]]
        assert {entry["text"] for entry in own} == {"parked: it waits for other shard tables"}
        assert all("ADD COLUMN remark" in entry["statement"] and entry["position"] for entry in own)


def _error(world: World, source_id: str) -> None:
    entries = _wait_for(world, lambda found: _texts(found, "error"), "the error is recorded")
    [error] = [entry for entry in entries if entry["kind"] == "error"]
    shown = world.cluster.subtasks(_TASK)[source_id].raw["result"]["errors"][0]
    assert (error["code"], error["name"], error["message"]) == (shown["code"], shown["name"], shown["message"])
    assert (error["text"], error["sources"], error["stage"]) == ("Running → Paused", [source_id], "Paused")


def _skipped(world: World, before: list[Entry], source_id: str) -> None:
    """A killed leader loses nothing and writes nothing twice."""
    entries = _wait_for(
        world, lambda found: "skipped by an operator" in _texts(found, "ddl", source_id), "the override is recorded"
    )
    assert [entry for entry in entries if entry in before] == before
    assert _texts(entries, "command") == ["start-task", "pause-task", "resume-task", "binlog skip"]
    command = next(entry for entry in entries if entry["text"] == "binlog skip")
    assert command["sources"] == [source_id]
    # The filters of the command.
    only = _entries(world, "--kind", "error", "--kind", "ddl", "-s", source_id)
    assert {entry["kind"] for entry in only} == {"error", "ddl"}
    assert all(entry["sources"] in ([], [source_id]) for entry in only)
    limited = _history(world, "--limit", "2")
    assert limited["entries"] == entries[-2:]
    assert limited["older"] == str(len(entries) - 2)
    assert _entries(world, "--since", "2100-01-01") == []


def _stopped(world: World) -> None:
    ids = [source_id for source_id, _ in world.sources]

    def is_complete(found: list[Entry]) -> bool:
        last = [_texts(found, "stage", each)[-1] for each in ids]
        return all("→ Stopped" in text for text in last) and "stop-task" in _texts(found, "command")

    entries = _wait_for(world, is_complete, "the end is recorded")
    answer = _history(world)
    assert answer["exists"] is False  # and its history remains
    assert [sample for sample in answer["samples"] if int(sample["sources"]) == len(ids)]
    assert len({json.dumps(entry, sort_keys=True) for entry in entries}) == len(entries)
    unknown = world.cluster.dmctl("history", "no-such-task", check=False)
    assert unknown.code == 1
