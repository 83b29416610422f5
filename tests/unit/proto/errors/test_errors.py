"""The error catalogue: whole, and stable once released."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import CATALOGUE, ErrorSpec
from shardmerge.proto.rpc.coded_errors import error_from_proto, error_to_proto

RELEASED = Path(__file__).resolve().parents[4] / "proto" / "errors" / "released.txt"
SPECS = sorted(CATALOGUE.values(), key=lambda spec: spec.code)


def test_codes_and_names_are_those_that_were_released() -> None:
    """Scripts and alert rules match on them: one may be added, none may change; one that is raised no more is marked as
    retired, and means nothing else again."""
    now = [f"{spec.code} {spec.name}" for spec in SPECS]
    released = RELEASED.read_text(encoding="utf-8").split("\n")
    retired = {line.split()[0] for line in released if line.endswith(" retired")}
    assert not [line for line in now if line.split()[0] in retired]
    gone = [line for line in released if line and line not in now and line.split()[0] not in retired]
    new = [line for line in now if line not in released]
    assert not gone, f"changed or removed: {gone}"
    assert not new, f"add these lines to {RELEASED.name}: {new}"


def test_a_code_belongs_to_one_class() -> None:
    folders: dict[int, set[str]] = {}
    for spec in SPECS:
        folders.setdefault(spec.code // 1000, set()).add(spec.error_class)
    assert all(len(classes) == 1 for classes in folders.values()), folders


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_an_entry_reports_what_and_what_to_do(spec: ErrorSpec) -> None:
    assert spec.message
    assert spec.workaround
    error = spec(**{name: f"<{name}>" for name in spec.placeholders()})
    assert "{" not in error.message + error.workaround
    assert str(spec.code) in str(error)
    assert pickle.loads(pickle.dumps(error)).message == error.message
    assert error_from_proto(error_to_proto(error)).message == error.message


def test_values_that_are_not_known_are_shown_as_in_a_commands_help() -> None:
    error = errors.replicate.DIVERGED(source="s1", schema="a", table="b", position="(f, 4)", missing=1)
    assert "`dmctl compare <task> --repair`" in error.workaround
    completed = error.completed(task="merge", source="another")
    assert "`dmctl binlog skip merge -s s1 " in completed.workaround
    assert pickle.loads(pickle.dumps(completed)).workaround == completed.workaround
    assert completed.completed(task="other") is completed


def test_the_way_out_of_missing_rows_ends_for_an_emptied_table_too() -> None:
    """Skipping one event after the other takes longer than the source needs to change further rows."""
    way_out = errors.replicate.DIVERGED(source="s1", task="merge", position="(f, 4)").workaround
    steps = [
        "`dmctl binlog skip merge -s s1 -b",
        "`dmctl compare merge --repair`",
        "safe-mode: true in a block of `syncers`",
    ]
    places = [way_out.find(step) for step in [*steps, "`dmctl update-task <file>`"]]
    assert places == sorted(places)
    assert places[0] > 0


@pytest.mark.parametrize("name", ["task", "source", "worker", "master", "lock"])
def test_no_text_has_a_gap_in_place_of_a_name(name: str) -> None:
    for spec in SPECS:
        if name in spec.placeholders():
            values = dict.fromkeys(spec.placeholders() - {name}, "x")
            error = spec(**values, **{name: ""})
            assert f"<{name}>" in error.message + error.workaround
            assert (error.message, error.workaround) == (spec(**values).message, spec(**values).workaround)
            assert error_from_proto(error_to_proto(error)).message == error.message


def test_a_way_out_that_copies_one_source_has_another_one_for_mixed_rows() -> None:
    """Where the rows of one source cannot be removed, the printed command would be refused, after the stop."""
    alone = "--remove-meta -s"
    copying = [spec for spec in CATALOGUE.values() if spec.copies_one_source]
    for spec in copying:
        error = spec(source="mysql-01")
        assert alone in error.workaround
        mixed = error.of_mixed_rows("orders", "mysql-01", "the rows are mixed", "shop.orders")
        assert alone not in mixed.workaround
        assert "`dmctl stop-task orders`" in mixed.workaround
        assert "empty shop.orders at the target" in mixed.workaround
        assert "ecause the rows are mixed" in mixed.workaround
        assert "{" not in mixed.workaround
        assert mixed.message == error.completed(task="orders").message
        assert error_from_proto(error_to_proto(mixed)).workaround == mixed.workaround
    others = {spec.code for spec in CATALOGUE.values() if alone in spec.workaround} - {spec.code for spec in copying}
    assert not others


@pytest.mark.parametrize("spec", [errors.relay.SOURCE_LACKS_GTIDS, errors.relay.SWITCH_ERRANT])
def test_a_copy_from_another_server_begins_with_the_file_of_the_source(spec: ErrorSpec) -> None:
    """The file may name a server that is lost: a copy from it would be refused after the task was stopped."""
    for error in (spec(source="s1"), spec(source="s1").of_mixed_rows("t", "s1", "no rule identifies them", "m.n")):
        _, stopped, copied = error.workaround.partition("`dmctl stop-task ")
        update, start = copied.find("`dmctl operate-source update <source-file>`"), copied.find("`dmctl start-task ")
        assert stopped and 0 < update < start, error.workaround


@pytest.mark.parametrize("spec", [errors.check_data.EARLIER_ROWS_MIXED, errors.check_data.OTHER_ROWS_GONE])
def test_a_task_that_start_task_refuses_may_be_stopped_already(spec: ErrorSpec) -> None:
    """stop-task is refused then."""
    assert "`dmctl stop-task t` unless it is stopped" in spec(task="t", source="s1").workaround
