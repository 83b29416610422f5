"""Does the steps of a case."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor

from shardmerge.proto import errors
from shardmerge.proto.errors import CATALOGUE
from tests.cases.case import (
    AllTypes,
    Binlog,
    Case,
    Cell,
    Compare,
    Do,
    Lock,
    Locks,
    Place,
    Preview,
    Previewed,
    Quarantine,
    Refused,
    Repair,
    Rows,
    SameBytes,
    ShardTable,
    Sql,
    SqlFile,
    StartTask,
    StopWriting,
    Unlock,
    Wait,
    Write,
    read_case,
)
from tests.support import all_types, judge, writer
from tests.support.cluster import Answer, SubTask, binlog_end
from tests.support.database import Database
from tests.support.exact import assert_same_bytes
from tests.support.wait import until
from tests.support.world import World

_SECONDS = 300.0
_STANDS_NOWHERE = errors.master.BINLOG_NO_ERROR.code
_NOT_NOW = (_STANDS_NOWHERE, errors.master.PEER_UNREACHABLE.code, errors.master.PEER_TIMEOUT.code)
"""Answers to a `binlog` command that another attempt may not get."""

_PLACE = re.compile(r"\((\S+), (\d+)\)")
"""Of an event, as errors name it."""


_META = "dm_meta"


def run_case(folder: Path, world: World) -> None:
    """Do all steps of the case, and check that it leaves no schema that another case could meet."""
    case = read_case(folder)
    before = _schemas(world)
    runner = Runner(world, folder)
    try:
        runner.run(case)
    finally:
        runner.end()
    strangers = [name for name in _schemas(world) - before if not name.startswith(runner.schema) and name != _META]
    assert not strangers, f"schemas that another case could meet: {strangers}"


def _schemas(world: World) -> set[str]:
    return {str(name) for server in world.servers for (name,) in server.query("SHOW DATABASES")}


class Runner:
    """One case in ``world``; :meth:`end` after :meth:`run`, whatever came of it.

    ``schema``: what the names of the case's schemas begin with.
    """

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._cluster = world.cluster
        self._folder = folder
        self._task = folder.name
        self.schema = folder.name.replace("-", "_")
        self._started = False
        self._writer: writer.Writer | None = None
        self._beside: list[str] = []
        self._on_tidb = world.target.flavor == "tidb"
        self._globals: dict[str, object] = {}

    def run(self, case: Case) -> None:
        """All steps; AssertionError names the step that did not hold."""
        if self._on_tidb:
            self._set_globals(case.on_tidb)
        for number, step in enumerate(case.steps, 1):
            try:
                self._step(step)
            except (AssertionError, pymysql.MySQLError) as error:
                raise AssertionError(f"{self._task}, step {number}, {step!r}:\n{error}") from error

    def end(self) -> None:
        if self._writer is not None:
            self._writer.stop()
        if self._started:
            self._cluster.dmctl("stop-task", self._task, check=False)
        for name in self._beside:
            self._cluster.dmctl("stop-task", name, check=False)
        for name, value in self._globals.items():
            self._world.target.execute(f"SET GLOBAL {name} = {value}")

    def _step(self, step: object) -> None:
        match step:
            case Sql(sql=text, at=places):
                self._sql(text, places)
            case SqlFile(sql_file=name, at=places):
                self._sql((self._folder / name).read_text(encoding="utf-8"), places)
            case StartTask(start_task=fragment, sources=sources, beside=beside) if beside:
                name = f"{self._task}_{beside}"
                self._beside.append(name)
                self._cluster.start_task(self._task_text({"name": name, **fragment}, sources))
                self._cluster.wait_subtasks(name, _replicates, "replicates", _SECONDS)
            case StartTask(start_task=fragment, sources=sources, options=options):
                self._started = True
                self._cluster.start_task(self._task_text(fragment, sources), *options)
            case Refused():
                self._refused(step)
            case Wait():
                self._wait(step)
            case Do(do=what):
                sources = [word for number in step.sources for word in ("-s", self._world.sources[number - 1][0])]
                self._cluster.dmctl(f"{what}-task", self._task, *sources, check=not step.pauses_again)
                if what == "pause":
                    self._cluster.wait_paused(self._task, _SECONDS)
            case Repair():
                options = ("--table", step.table) if step.table else ()
                found = self._cluster.compare(self._task, "--repair", *options, check=False)
                code = 2 if step.parked else 0
                assert (found.answer.code, found.total("repaired")) == (code, step.repaired), found.answer.text
                assert found.answer.text.count("it is parked at a sharding DDL") == step.parked, found.answer.text
            case Compare():
                self._compare(step)
            case Rows():
                self._rows(step)
            case Locks(locks=wanted):
                self._locks(wanted)
            case Unlock(unlock=target, options=options):
                self._cluster.dmctl("shard-ddl-lock", "unlock", self._lock_id(target), *map(self._id_of, options))
            case Binlog():
                self._binlog(step)
            case Quarantine(quarantine=op, options=options):
                answer = self._cluster.dmctl("quarantine", op, self._task, *options, check=not step.refused)
                assert answer.code == int(step.refused), answer.text
                for words in step.says:
                    assert words in answer.text, f"{words!r} is not in:\n{answer.text}"
            case Preview():
                self._preview(step)
            case SameBytes(same_bytes=table, key=key):
                self._same_bytes(table, key)
            case AllTypes():
                self._all_types(step)
            case Write():
                self._write(step)
            case StopWriting(stop_writing_after=changes):
                self._stop_writing(changes)
            case _:
                raise AssertionError(f"unknown step {step}")

    # -- servers

    def _set_globals(self, wanted: Mapping[str, int]) -> None:
        for name, value in wanted.items():
            [(self._globals[name],)] = self._world.target.query(f"SELECT @@GLOBAL.{name}")
            self._world.target.execute(f"SET GLOBAL {name} = {value}")

    def _server(self, place: Place) -> Database:
        match place:
            case "source-1":
                return self._world.sources[0][1]
            case "source-2":
                return self._world.sources[1][1]
            case "target":
                return self._world.target

    def _sql(self, text: str, places: Sequence[Place]) -> None:
        for place in places:
            _execute_all(self._server(place), text)

    def _rows(self, step: Rows) -> None:
        # TiDB shows definitions in another form.
        of_tidb = self._on_tidb and "information_schema" in step.rows.lower()
        form = _definition_form if of_tidb else _as_is

        def result(place: Place) -> list[list[Cell]]:
            return form(_result(self._server(place), step.rows))

        on_tidb = step.on_tidb if self._on_tidb else None
        are = step.are if on_tidb is None else on_tidb
        expected = None if are is None else form(are)
        if step.soon and expected is not None:
            until(lambda: result(step.at) == expected, f"{step.rows} is {expected}", _SECONDS)
        found = result(step.at)
        if step.same_at is not None and on_tidb is None:
            expected = result(step.same_at)
            assert expected, f"no rows at {step.same_at}: nothing was compared"
        assert found == expected, f"is:        {_short(found)}\nshould be: {_short(expected or [])}"

    # -- the task

    def _task_text(self, fragment: dict[str, object], sources: Sequence[int]) -> str:
        keys = ("routes", "column-mappings", "block-allow-list", "filters")
        routes, mappings, lists, filters = (_names(fragment, key) for key in keys)
        numbered = ("-1", "-2")
        target = self._world.target
        task: dict[str, object] = {
            "name": self._task,
            "task-mode": "all",
            "meta-schema": "dm_meta",
            "target-database": {"host": target.host, "port": target.port, "user": "root", "password": ""},
            "mysql-instances": [
                {
                    "source-id": self._world.sources[number - 1][0],
                    "block-allow-list": lists[0] if lists else "case",
                    "route-rules": routes,
                    "expression-filters": _names(fragment, "expression-filter"),
                    "transform-rules": _names(fragment, "transforms"),
                    "column-mapping-rules": [
                        name for name in mappings if name[-2:] not in numbered or name.endswith(f"-{number}")
                    ],
                    "filter-rules": [
                        name for name in filters if name[-2:] not in numbered or name.endswith(f"-{number}")
                    ],
                }
                for number in sources
            ],
            **({} if lists else {"block-allow-list": {"case": {"do-dbs": [f"{self.schema}*"]}}}),
            **fragment,
        }
        return _yaml(task)

    def _refused(self, step: Refused) -> None:
        if self._on_tidb and step.not_on_tidb is not None:
            return
        file = self._cluster.write(f"{self._task}.task.yaml", self._task_text(step.refused, step.sources))
        answer = self._cluster.dmctl("start-task", file, check=False)
        assert answer.code == 1, answer.text
        assert f'"code": {step.code}' in answer.text or f"[{step.code} " in answer.text, answer.text
        for words in step.says:
            assert words in answer.text, f"{words!r} is not in:\n{answer.text}"
        left = self._cluster.subtasks(self._task)
        assert left == {}, f"a refused task left subtasks: {left}"

    def _wait(self, step: Wait) -> None:
        match step.wait:
            case "replicating":
                self._wait_all(_replicates, "replicates")
            case "caught-up":
                ends = {source: binlog_end(server) for source, server in self._world.sources}
                self._wait_all(
                    lambda sub: sub.unit == "Sync" and sub.synced and sub.position >= ends[sub.source],
                    f"has applied up to {ends}",
                )
            case "finished":
                self._wait_all(lambda sub: sub.stage == "Finished", "is finished")
            case "paused":
                self._wait_paused(step)

    def _wait_all(self, condition: Callable[[SubTask], bool], what: str) -> None:
        """At once an AssertionError when a subtask stands with an error that it will not try again."""

        def holds(subtask: SubTask) -> bool:
            if _stands(subtask):
                raise AssertionError(f"{subtask.source} is paused instead: {subtask.errors}")
            return condition(subtask)

        self._cluster.wait_subtasks(self._task, holds, what, _SECONDS)

    def _wait_paused(self, step: Wait) -> None:
        def stands(sub: SubTask) -> bool:
            """Not with an error that passes by itself, unless it is meant."""
            codes = [code for code, _ in sub.errors]
            passes = codes != [step.code] and any(CATALOGUE[code].retryable for code in codes)
            return sub.stage == "Paused" and not passes

        wanted = {self._id_of(f"source-{number}") for number in step.sources}

        def is_there(sub: SubTask) -> bool:
            return stands(sub) or (bool(wanted) and sub.source not in wanted)

        found = self._cluster.wait_subtasks(self._task, is_there, "is paused", _SECONDS)
        for subtask in found.values():
            if wanted and subtask.source not in wanted:
                continue
            assert [code for code, _ in subtask.errors] == [step.code], subtask
            for words in step.says:
                assert words in subtask.errors[0][1], f"{words!r} is not in: {subtask.errors[0][1]}"

    def _binlog(self, step: Binlog) -> None:
        place: list[str] = []
        before: dict[str, int] = {}
        if step.binlog != "list" and step.code is None and not step.parked:
            before = {sub.source: _run_of(sub) for sub in self._standing()}
        if step.named:
            [subtask] = self._standing()
            named = _PLACE.search(subtask.errors[0][1])
            assert named is not None, subtask
            place = ["-b", f"{named[1]}:{named[2]}"]
        if step.parked:
            place = [
                "-s",
                self._id_of(step.parked),
                "-b",
                until(lambda: self._parked_at(step.parked), "it is parked", _SECONDS),
            ]
        sqls = [step.sqls] if step.sqls else []
        command = ("binlog", step.binlog, self._task, *sqls, *place, *map(self._id_of, step.options))
        answers: list[Answer] = []

        def stands() -> bool:
            """Not while it tries once more, nor when its worker does not answer in time."""
            answers[:] = [self._cluster.dmctl(*command, check=False)]
            refused = answers[0].code == 1
            return not any(refused and code != step.code and f"[{code} " in answers[0].text for code in _NOT_NOW)

        until(stands, f"the task stands somewhere, for {' '.join(command)}", _SECONDS)
        [answer] = answers
        if step.code is None:
            assert answer.code == 0 and answer.json.get("result") is True, answer.text
        else:
            assert answer.code == 1, answer.text
            assert f'"code": {step.code}' in answer.text or f"[{step.code} " in answer.text, answer.text
        for words in step.says:
            assert words in answer.text, f"{words!r} is not in:\n{answer.text}"
        if before:
            # Each word lets the task try once more: only then is what it shows not what it was.
            self._cluster.wait_subtasks(
                self._task, lambda sub: _run_of(sub) > before.get(sub.source, -1), "has heard the word", _SECONDS
            )

    def _id_of(self, place: str) -> str:
        """The id of "source-1" or "source-2"; any other text as it is."""
        names = {f"source-{number}": source for number, (source, _) in enumerate(self._world.sources, 1)}
        return names.get(place, place)

    def _parked_at(self, place: str) -> str:
        """The position at which a table of this source is parked, "" when none is."""
        answer = self._cluster.dmctl("shard-ddl-lock", self._task)
        locks = cast("list[dict[str, list[dict[str, str]]]]", answer.json.get("locks") or [])
        tables = [table for lock in locks for table in lock["tables"] if table["source"] == self._id_of(place)]
        return next((table["position"] for table in tables if table.get("position")), "")

    def _standing(self) -> list[SubTask]:
        """Those that stand with an error, once there are any."""
        return until(
            lambda: [sub for sub in self._cluster.subtasks(self._task).values() if _stands(sub)],
            "the task stands somewhere",
            _SECONDS,
        )

    # -- locks

    def _lock_id(self, target: str) -> str:
        schema, table = target.split(".")
        return f"{self._task}-`{schema}`.`{table}`"

    def _locks(self, wanted: Sequence[Lock]) -> None:
        expected = sorted(
            (self._lock_id(lock.target), lock.stage, sorted(lock.unsynced), lock.conflict) for lock in wanted
        )
        seen: list[object] = []

        def holds() -> bool:
            seen[:] = self._seen_locks()
            return seen == expected

        try:
            until(holds, "the locks are these", _SECONDS)
        except AssertionError as error:
            raise AssertionError(f"is:        {seen}\nshould be: {expected}") from error
        conflicts = [lock for lock in wanted if lock.conflict is not None]
        if conflicts:
            until(lambda: self._shows(conflicts), "query-status names the conflicts", 30)

    def _shows(self, conflicts: Sequence[Lock]) -> bool:
        """Whether query-status has the conflicts as errors with the way out, and the list of tasks shows an error."""
        text = self._cluster.dmctl("query-status", self._task).text
        listed = self._cluster.dmctl("query-status").json
        [task] = [each for each in cast("list[dict[str, object]]", listed["tasks"]) if each["taskName"] == self._task]
        named = [f"shard-ddl-lock unlock '{self._lock_id(lock.target)}'" in text for lock in conflicts]
        coded = [f'"code": {lock.conflict}' in text for lock in conflicts]
        return all((*named, *coded)) and str(task["taskStatus"]).startswith("Error - Some error occurred in subtask")

    def _seen_locks(self) -> list[object]:
        answered = self._cluster.dmctl("shard-ddl-lock", self._task, check=False)
        if answered.code != 0:
            return [answered.text]
        places = {source: f"source-{number}" for number, (source, _) in enumerate(self._world.sources, 1)}
        found: list[object] = []
        for lock in cast("list[dict[str, object]]", answered.json.get("locks") or []):
            conflict = cast("dict[str, object] | None", lock.get("conflict"))
            unsynced = sorted(places[str(source)] for source in cast("list[str]", lock["unsynced"]))
            code = int(str(conflict["code"])) if conflict else None
            found.append((str(lock["ID"]), str(lock["stage"]), unsynced, code))
        return sorted(found, key=str)

    # -- rehearsals

    def _preview(self, step: Preview) -> None:
        before = self._untouched(step.target)
        tables = [part for table in step.for_ for part in ("--table", table)]
        sources = [part for number in step.sources for part in ("-s", self._world.sources[number - 1][0])]
        command = ("shard-ddl", "preview", self._task, step.preview, *tables, *sources)
        answer = self._cluster.dmctl(*command, check=step.code is None)
        if step.code is not None:
            assert f"[{step.code} " in answer.text, answer.text
        else:
            told = cast("list[dict[str, object]]", answer.json["tables"])
            assert len(told) == len(step.are), told
            for said, wanted in zip(told, step.are, strict=True):
                self._previewed(said, wanted)
        assert self._untouched(step.target) == before
        trackers = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_NAME LIKE 'ddl!_tracker!_%' ESCAPE '!'"
        until(lambda: not self._world.target.query(trackers), "no tracker is left", _SECONDS)

    def _previewed(self, said: dict[str, object], wanted: Previewed) -> None:
        places = {source: f"source-{number}" for number, (source, _) in enumerate(self._world.sources, 1)}
        assert (places[str(said["source"])], f"{said['schema']}.{said['table']}", said["outcome"]) == (
            wanted.source,
            wanted.table,
            wanted.outcome,
        ), said
        missing = cast("list[object]", said["missing"])
        assert (len(missing), said["contradicts"]) == (wanted.missing, wanted.contradicts), said
        if wanted.statement is not None:
            assert said["statement"] == self._expected(wanted.statement, wanted), said
        if wanted.owner is not None:
            assert places.get(str(said["owner"]), "") == wanted.owner, said
        text = "\n".join((str(said["reason"]), *cast("list[str]", said["risks"])))
        for words in (self._expected(each, wanted) for each in wanted.says):
            assert words in text, f"{words!r} is not in: {text}"
        error = cast("dict[str, object] | None", said["error"])
        assert (int(str(error["code"])) if error else None) == wanted.code, said

    def _expected(self, text: str, wanted: Previewed) -> str:
        for usual, at_tidb in wanted.on_tidb.items() if self._on_tidb else ():
            text = text.replace(usual, at_tidb)
        return text

    def _untouched(self, target: str) -> list[object]:
        """What a rehearsal could change and must not."""
        found: list[object] = [self._world.target.query(f"SHOW CREATE TABLE {target}")]
        for table in ("table_creation", "table_structure", "parked_table", "dropped_column", "statement_begun"):
            query = f"SELECT * FROM dm_meta.{table} WHERE task = '{self._task}'"
            found.append(sorted(map(str, self._world.target.query(query))))
        return found

    # -- judge and writer

    def _shard(self, shard: ShardTable) -> tuple[Database, str, str]:
        schema, table = shard.table.split(".")
        return self._world.sources[shard.source - 1][1], schema, table

    def _compare(self, step: Compare) -> None:
        shards: list[judge.Shard] = []
        for shard in step.compare:
            server, schema, table = self._shard(shard)
            ids = judge.PartitionIds(*shard.ids) if shard.ids is not None else None
            shards.append(judge.Shard(server.connect, schema, table, ids))
        target = judge.Target(self._world.target.connect, *step.with_.split("."))
        verdict = judge.compare(shards, target, key=step.key, columns=step.columns)
        assert verdict.differences == 0, verdict
        assert verdict.rows >= step.rows, verdict

    def _same_bytes(self, table: str, key: Sequence[str]) -> None:
        assert_same_bytes(self._server("source-1"), self._world.target, table, key, as_text=self._on_tidb)

    def _all_types(self, step: AllTypes) -> None:
        schema = step.table.split(".")[0]
        create = all_types.CREATE.replace(" PRIMARY KEY", "") if step.keyless else all_types.CREATE
        statements = {
            "create": (f"CREATE DATABASE IF NOT EXISTS {schema}", create),
            "insert": all_types.INSERTS,
            "change": all_types.CHANGES,
        }[step.all_types]
        # One by one: a batch in one string would be cut where a value holds a ";".
        self._server("source-1").execute(
            "SET sql_mode = ''", *(statement.replace("d.all_types", step.table) for statement in statements)
        )

    def _write(self, step: Write) -> None:
        shards: list[writer.ShardTable] = []
        for shard in step.write:
            server, schema, table = self._shard(shard)
            shards.append(writer.ShardTable(server.connect, schema, table))
        writer.create_tables(shards)
        for number, shard in enumerate(shards):
            writer.fill(shard, step.rows, step.seed + number)
        self._writer = writer.Writer(shards, seed=step.seed)
        self._writer.start()

    def _stop_writing(self, changes: int) -> None:
        running = self._writer
        assert running is not None, "nothing writes"
        seen = running.counts.changes
        until(lambda: running.counts.changes >= seen + changes, f"the writer makes {changes} further changes")
        running.stop()
        self._writer = None


def _replicates(subtask: SubTask) -> bool:
    """With lanes: before these are dealt it is not recorded which tables they have."""
    sync: dict[str, object] = subtask.raw.get("sync") or {}
    return subtask.unit == "Sync" and subtask.stage == "Running" and bool(sync.get("lanes"))


def _stands(subtask: SubTask) -> bool:
    """Paused with an error that it will not try again."""
    return subtask.stage == "Paused" and any(not CATALOGUE[code].retryable for code, _ in subtask.errors)


def _run_of(subtask: SubTask) -> int:
    """The number of its last run."""
    return int(subtask.raw.get("epoch") or 0)


def _names(fragment: dict[str, object], key: str) -> list[str]:
    """The names of the rules under ``key``."""
    return list(cast("dict[str, object]", fragment.get(key, {})))


def _yaml(task: dict[str, object]) -> str:
    """A task file; what stands deeper than its keys is JSON, which is YAML too."""
    lines: list[str] = []
    for key, value in task.items():
        if key == "mysql-instances" and isinstance(value, list):
            lines.append(f"{key}:")
            for instance in cast("list[dict[str, object]]", value):
                start = "  - "
                for name, part in instance.items():
                    lines.append(f"{start}{name}: {json.dumps(part, ensure_ascii=False)}")
                    start = "    "
        else:
            lines.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _execute_all(server: Database, text: str) -> None:
    # The server splits the statements: no second idea of SQL here.
    connection = pymysql.connect(
        host=server.host,
        port=server.port,
        user="root",
        autocommit=True,
        charset="utf8mb4",
        init_command="SET time_zone='+00:00'",
        client_flag=CLIENT.MULTI_STATEMENTS,
        ssl_disabled=True,
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute(text)
            _drain(cursor)
    finally:
        connection.close()


def _drain(cursor: Cursor) -> None:
    """Read every result, so that an error of a later statement is raised."""
    while cursor.nextset():
        pass


_WIDTH = re.compile(r"\b((?:tiny|small|medium|big)?int)\(\d+\)")
"""The display width of an integer type, which TiDB and MySQL 8 do not show."""


def _as_is(rows: list[list[Cell]]) -> list[list[Cell]]:
    return rows


_LITERAL = re.compile(r"'(.*)'")
"""A default, which MariaDB shows as a literal, and TiDB and MySQL as its value."""


def _definition_form(rows: list[list[Cell]]) -> list[list[Cell]]:
    """Rows of information_schema as every server shows them: without display widths, NULL for a missing default or
    expression, numbers as numbers, texts without quotes, in an order that no collation decides. TiDB has no
    latin1_swedish_ci: new tables get latin1_bin instead."""

    def cell(value: Cell) -> Cell:
        if value is None or value in ("NULL", ""):
            return None
        text = _WIDTH.sub(r"\1", str(value))
        literal = _LITERAL.fullmatch(text)
        text = text if literal is None else literal[1]
        text = "latin1_bin" if text == "latin1_swedish_ci" else text
        return int(text) if text.isdecimal() else text

    return sorted(
        ([cell(value) for value in row] for row in rows), key=lambda row: [str(value).lower() for value in row]
    )


def _result(server: Database, query: str) -> list[list[Cell]]:
    return [[_cell(value) for value in row] for row in server.query(query)]


def _cell(value: object) -> Cell:
    match value:
        case None | int():
            return value
        case bytes():
            return value.hex().upper()
        case _:
            return str(value)


def _short(rows: list[list[Cell]]) -> str:
    """Rows for a message."""
    text = str(rows)
    return text if len(text) <= 3000 else f"{text[:3000]}… ({len(text)} characters)"
