"""What update-task takes and refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardmerge.master.commands.task.rename_target import check_alone, check_moves
from shardmerge.master.commands.task.update import (
    check_no_moves,
    check_shard_mode,
    move_note,
    rename_note,
    select,
    settings_changed,
)
from shardmerge.master.state import State
from shardmerge.proto import config_pb2, errors, state_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.config.task.task_file import TaskFile, parse_task
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.worker_pb2 import TableChange
from tests.unit.master.records import state

TASK = """
name: merge
task-mode: all
target-database: {host: 127.0.0.1, port: 4000, user: dm, password: "secret-1"}
mysql-instances:
  - source-id: s1
  - source-id: s2
"""
BINDINGS = {"s1": "w1", "s2": "w2"}


def _file(old: str = "", new: str = "") -> TaskFile:
    assert old in TASK
    return parse_task(TASK.replace(old, new) if old else TASK, "merge.yaml")


def _one(old: str = "", new: str = "", extra: str = "") -> config_pb2.SubTaskConfig:
    return parse_task((TASK.replace(old, new) if old else TASK) + extra, "merge.yaml").to_subtasks()[0]


def _refused(spec: ErrorSpec, work: Callable[[], object]) -> ShardmergeError:
    with pytest.raises(ShardmergeError) as caught:
        work()
    assert caught.value.spec is spec
    return caught.value


def test_a_table_moves_only_where_the_user_wants_it() -> None:
    stays = TableChange(kind=TableChange.JOINS, source_table="`a`.`t`", after="`x`.`t`")
    moves = TableChange(kind=TableChange.MOVES, source_table="`b`.`t`", before="`x`.`t`", after="`y`.`t`")
    check_no_moves("merge", [pb.SourceUpdate(result=True, source="s1", tables=[stays])])
    parts = [pb.SourceUpdate(source="s1", tables=[stays]), pb.SourceUpdate(source="s2", tables=[moves, moves])]
    error = _refused(errors.master.UPDATE_MOVES, lambda: check_no_moves("merge", parts))
    assert (error.values["source"], error.values["count"], error.values["table"]) == ("s2", "2", "`b`.`t`")


def test_the_sources_that_run_it() -> None:
    running = _file().to_subtasks()[:1]
    wanted = select(_file(), state(bindings=BINDINGS, subtasks=running))
    assert [one.source_id for one in wanted.subtasks] == ["s1"]
    assert wanted.absent == ("s2",)


def test_refusals() -> None:
    both = _file().to_subtasks()
    _refused(errors.master.TASK_UNKNOWN, lambda: select(_file(), state(bindings=BINDINGS)))
    one = _file("  - source-id: s2\n")
    error = _refused(errors.master.UPDATE_SOURCES, lambda: select(one, state(bindings=BINDINGS, subtasks=both)))
    assert error.values["sources"] == "s2"
    full = _file("task-mode: all", "task-mode: full")
    _refused(errors.master.UPDATE_FULL, lambda: select(full, state(bindings=BINDINGS, subtasks=both)))


def _changes(*tables: tuple[TableChange.Kind, str, str], setting: str = "") -> pb.SourceUpdate:
    part = pb.SourceUpdate(tables=[TableChange(kind=kind, before=one, after=two) for kind, one, two in tables])
    if setting:
        part.settings.add(key=setting)
    return part


def test_a_dry_run_names_the_rename_where_it_is_possible() -> None:
    move = (TableChange.MOVES, "`d`.`t`", "`d`.`u`")
    [note] = rename_note([_changes(move, move), _changes(), _changes(move)])
    assert "--rename-target renames `d`.`t` to `d`.`u`" in note
    for parts in (
        [_changes()],
        [_changes(move, (TableChange.MOVES, "`d`.`t`", "`d`.`w`"))],
        [_changes((TableChange.JOINS, "", "`d`.`u`"))],
        [_changes(move, (TableChange.JOINS, "`d`.`t`", "`d`.`u`"))],
        [_changes(move), _changes(setting="replicate.lanes")],
    ):
        assert rename_note(parts) == (), parts


def test_a_dry_run_names_the_option_that_the_update_needs() -> None:
    move = (TableChange.MOVES, "`d`.`t`", "`d`.`u`")
    [note] = move_note([_changes(move, move), _changes(), _changes(move)])
    assert note.startswith("3 shard table(s)")
    assert "--move-tables" in note
    assert move_note([_changes((TableChange.JOINS, "", "`d`.`u`"))]) == ()


def test_a_rename_is_all_that_the_file_changes() -> None:
    routed = TASK.replace("source-id: s1", "{source-id: s1, route-rules: [r]}").replace(
        "source-id: s2", "{source-id: s2, route-rules: [r]}"
    )
    routes = "routes:\n  r: {schema-pattern: a, table-pattern: b, target-schema: d, target-table: TABLE}\n"
    before = parse_task((routed + routes).replace("TABLE", "t"), "merge.yaml").to_subtasks()
    now = state(bindings=BINDINGS, subtasks=before)

    def check(text: str, seen: State = now) -> None:
        check_alone(select(parse_task(text, "merge.yaml"), seen), seen)

    after = (routed + routes).replace("TABLE", "u")
    check(after)
    error = _refused(errors.master.RENAME_NOT_ALONE, lambda: check(after + "replicate: {lanes: 3}\n"))
    assert "replicate" in str(error)
    move = (TableChange.MOVES, "`d`.`t`", "`d`.`u`")
    check_moves("merge", [_changes(move)])
    for kind in (TableChange.JOINS, TableChange.LEAVES):
        parts = [_changes(move, (kind, "", "`d`.`u`"))]
        _refused(errors.master.RENAME_NOT_ALONE, lambda parts=parts: check_moves("merge", parts))
    only = state(bindings=BINDINGS, subtasks=before[:1])
    error = _refused(errors.master.RENAME_NOT_ALONE, lambda: check(after, only))
    assert "s2" in str(error)
    locked = state(bindings=BINDINGS, subtasks=before, locks=(LOCK,))
    _refused(errors.master.RENAME_BUSY, lambda: check(after, locked))


def test_settings_that_differ_are_reported_and_tables_are_not() -> None:
    after = _one(extra="replicate: {lanes: 3, on-row-error: quarantine}\nsnapshot: {rows-per-second: 100}\n")
    assert [(one.key, one.before, one.after) for one in settings_changed(_one(), after)] == [
        ("replicate.lanes", "2", "3"),
        ("replicate.on-row-error", "pause", "quarantine"),
        ("snapshot.rows-per-second", "", "100"),
    ]
    assert settings_changed(_one(), _one()) == ()
    other_tables = _one(
        "source-id: s1", "source-id: s1\n    block-allow-list: few", "block-allow-list: {few: {do-dbs: [a]}}\n"
    )
    assert settings_changed(_one(), other_tables) == ()


def test_transforms_may_change_for_tables_that_come() -> None:
    rules = "transforms: {t: {schema-pattern: a, filter: n = 1}}\n"
    transformed = _one("source-id: s1", "source-id: s1\n    transform-rules: [t]", rules)
    assert settings_changed(_one(), transformed) == (), "its tables tell of it"


def test_references_may_change_for_tables_that_come() -> None:
    assert settings_changed(_one(), _one(extra="references: none\n")) == ()
    assert settings_changed(_one(), _one(extra="references: [{from: c.t_id, to: t.id}]\n")) == ()


def test_a_setting_that_stays_is_named_as_the_file_names_it() -> None:
    with pytest.raises(ShardmergeError) as caught:
        settings_changed(_one(), _one(extra="cascades: derive\n"))
    assert caught.value.spec is errors.master.UPDATE_FIXED
    assert "cascades cannot be changed by an update (it is refuse, in the file derive)" in caught.value.message


def test_a_task_of_an_earlier_version_takes_the_default_of_new_keys() -> None:
    before = _one()
    before.ClearField("auto_increment")
    [change] = settings_changed(before, _one())
    assert (change.key, change.before, change.after) == ("auto-increment", "", "keep")


def test_a_password_may_change_and_is_not_shown() -> None:
    [change] = settings_changed(_one(), _one("secret-1", "secret-2"))
    assert change.key == "target-database.password"
    assert "secret" not in str(change)


PARKED = state_pb2.ShardRecord(
    targets=[
        state_pb2.ShardTarget(
            schema="d",
            table="t",
            tables=[state_pb2.ShardTable(schema="a", table="t_1", parked=state_pb2.ParkedAt(form="f"))],
        )
    ]
)
LOCK = state_pb2.LockRecord(task="merge", target_schema="d", target_table="t")


@pytest.mark.parametrize(
    ("security", "changes"),
    [
        (
            "ssl-ca-bytes: '-----BEGIN s3cret'",
            [("target-database.security.ssl-ca-bytes", "(not shown)", "(not shown)")],
        ),
        (
            "ssl-cert-bytes: '-----BEGIN s3cret', ssl-key-bytes: '-----BEGIN s3cret'",
            [(f"target-database.security.ssl-{part}-bytes", "(not shown)", "(not shown)") for part in ("cert", "key")],
        ),
        (
            "ssl-ca: /ca, ssl-cert: /cert, ssl-key: /key, cert-allowed-cn: [db]",
            [("cert-allowed-cn", "['db']"), ("ssl-ca", "/ca"), ("ssl-cert", "/cert"), ("ssl-key", "/key")],
        ),
    ],
)
def test_certificates_may_change_and_are_not_shown(security: str, changes: list[tuple[str, ...]]) -> None:
    before, after = _one(), _one("password:", f"security: {{{security}}}, password:")
    told = [one if len(one) == 3 else (f"target-database.security.{one[0]}", "", one[1]) for one in changes]
    assert [(one.key, one.before, one.after) for one in settings_changed(before, after)] == told
    assert [one.key for one in settings_changed(after, before)] == [key for key, _, _ in told], "taken away"


@pytest.mark.parametrize(
    ("shards", "locks"), [({("merge", "s2"): PARKED}, ()), ({}, (LOCK,)), ({("merge", "s1"): PARKED}, (LOCK,))]
)
def test_the_shard_mode_stays_while_shard_tables_wait(
    shards: dict[tuple[str, str], state_pb2.ShardRecord], locks: tuple[state_pb2.LockRecord, ...]
) -> None:
    before = parse_task(TASK + "shard-mode: pessimistic\n", "merge.yaml").to_subtasks()
    now = state(bindings=BINDINGS, subtasks=before, shards=shards, locks=locks)
    for other in ("", "shard-mode: optimistic\n"):
        after = parse_task(TASK + other, "merge.yaml").to_subtasks()
        error = _refused(errors.master.UPDATE_SHARD_MODE, lambda after=after: check_shard_mode(after, now))
        assert error.values["locks"] == "merge-`d`.`t`"
        check_shard_mode(after, state(bindings=BINDINGS, subtasks=before))
    check_shard_mode(before, now)


def test_locks_and_waiting_tables_of_other_tasks_are_not_in_the_way() -> None:
    before = _file().to_subtasks()
    other = state_pb2.LockRecord(task="other", target_schema="d", target_table="t")
    now = state(bindings=BINDINGS, subtasks=before, shards={("other", "s1"): PARKED}, locks=(other,))
    check_shard_mode(parse_task(TASK + "shard-mode: optimistic\n", "merge.yaml").to_subtasks(), now)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("port: 4000", "port: 4001"),
        ("host: 127.0.0.1", "host: 127.0.0.2"),
        ("task-mode: all", "task-mode: incremental"),
        ("task-mode: all", "task-mode: all\nmeta-schema: elsewhere"),
    ],
)
def test_what_a_running_task_cannot_change(old: str, new: str) -> None:
    _refused(errors.master.UPDATE_FIXED, lambda: settings_changed(_one(), _one(old, new)))
