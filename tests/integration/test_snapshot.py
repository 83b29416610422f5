"""The snapshot unit on real servers: plan, read, fix up, load, hand over; restarts, zombies, collisions."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from proto import config_pb2, errors, relay_pb2
from tests.integration.snapshot_rig import (
    META,
    SOURCE,
    TASK,
    Rig,
    Threads,
    count_rows,
    endpoint,
    subtask_config,
)
from tests.support.database import Database
from tests.support.hooks import Hooks
from tests.support.judge import PartitionIds, Shard, Target, compare
from tests.support.pair import KINDS, emptied, started_pair
from tests.support.wait import until
from tests.support.writer import ShardTable, Writer, create_tables, fill
from worker.connection import Session, Side, connect, server_info
from worker.plan import ColumnPlan, TablePlan
from worker.position import RelayOffset, SourcePosition
from worker.schema import read_table
from worker.snapshot.chunks import Chunk
from worker.snapshot.link import GrpcLink, Located
from worker.snapshot.order import bound_columns, key_bound
from worker.snapshot.plan import TablePlanner
from worker.snapshot.rawquery import raw_rows
from worker.snapshot.reader import ReaderSpec, read_chunks
from worker.snapshot.source import ChunkSource, chunk_select
from worker.snapshot.watermarks import low_watermark, open_consistent
from worker.spark import TaskFailed, TaskOutcome
from worker.unit import Failed, Finished, Stopped, StopSignal


@pytest.fixture(scope="module", params=KINDS)
def servers(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Database, Database]]:
    """Both of one kind; tests/integration/test_pairs.py crosses the kinds."""
    kind = KINDS[request.param]
    with started_pair(tmp_path_factory.mktemp("snapshot"), kind, kind) as pair:
        yield pair


@pytest.fixture
def source(servers: tuple[Database, Database]) -> Database:
    return emptied(servers[0])


@pytest.fixture
def target(servers: tuple[Database, Database]) -> Database:
    return emptied(servers[1])


def _make(source: Database, *statements: str, schema: str = "shard") -> None:
    """Statements in a new schema; the sequence engine needs one to be chosen."""
    source.execute(f"CREATE DATABASE {schema}", f"USE {schema}", *map(source.spelt, statements))


def _make_table(source: Database, name: str) -> None:
    definition, rows = _TABLES[name]
    _make(source, f"CREATE TABLE t ({definition}) ENGINE=InnoDB", f"INSERT INTO t {rows}", "ANALYZE TABLE t")


# --- planning


def _plan_of(source: Database, schema: str, name: str) -> TablePlan:
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE)
    try:
        table = read_table(session, schema, name)
    finally:
        session.close()
    assert table is not None
    columns = tuple(
        ColumnPlan(index, column, column.name) for index, column in enumerate(table.columns) if not column.generated
    )
    return TablePlan(0, SOURCE, table, schema, name, columns, table.key)


_TABLES = {
    "composite": (
        "a INT NOT NULL, b VARCHAR(20) NOT NULL, c DATE NOT NULL, v INT, PRIMARY KEY (a, b, c)",
        "SELECT seq DIV 400, CONCAT('k', seq MOD 37), DATE'2020-01-01' + INTERVAL seq DAY, seq FROM seq_1_to_1000",
    ),
    "case_insensitive": (
        "k VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v INT",
        "SELECT CONCAT(IF(seq % 2, 'Name ', 'nAME '), seq, IF(seq % 3, '', '  ')), seq FROM seq_1_to_990 UNION ALL "
        "SELECT CONCAT('😀', seq), seq FROM seq_1_to_9 UNION ALL SELECT 'ÄÖ''\\\\', 1",
    ),
    "no_pad": (
        "k VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_nopad_ci PRIMARY KEY, v INT",
        "SELECT CONCAT(CHAR(65 + seq % 26), REPEAT(' ', seq % 5), IF(seq % 7, seq, '😀')), MIN(seq) FROM seq_1_to_1000 "
        "GROUP BY 1",
    ),
    "latin1": (
        "k CHAR(12) CHARACTER SET latin1 COLLATE latin1_german2_ci PRIMARY KEY, v INT",
        "SELECT CONCAT(CHAR(0xE4 + seq % 20 USING latin1), seq), seq FROM seq_1_to_1000",
    ),
    "unsigned_limits": (
        "k BIGINT UNSIGNED PRIMARY KEY, v INT",
        "SELECT 18446744073709551615 - seq + 1, seq FROM seq_1_to_1000",
    ),
    "negative": ("k BIGINT PRIMARY KEY, v INT", "SELECT CAST(seq AS SIGNED) - 700, seq FROM seq_1_to_1000"),
    "signed_limits": (
        "k BIGINT PRIMARY KEY, v INT",
        "SELECT -9223372036854775808 + CAST(seq - 1 AS SIGNED), seq FROM seq_1_to_500 UNION ALL "
        "SELECT 9223372036854775807 - CAST(seq - 1 AS SIGNED), seq FROM seq_1_to_500",
    ),
    "big_holes": (
        "k BIGINT PRIMARY KEY, v INT",
        "SELECT seq * seq * seq * 1000003, seq FROM seq_1_to_1000",
    ),
    "crowded": (
        "k BIGINT PRIMARY KEY, v INT",
        "SELECT seq, seq FROM seq_1_to_999 UNION ALL SELECT 500000, 1",
    ),
    "binary": (
        "k BINARY(8) PRIMARY KEY, v INT",
        "SELECT UNHEX(CONCAT(LEFT(SHA2(seq, 256), 14), '00')), seq FROM seq_1_to_1000",
    ),
    "decimals": (
        "k DECIMAL(20,5) PRIMARY KEY, v INT",
        "SELECT (CAST(seq AS SIGNED) - 500) / 3, seq FROM seq_1_to_1000",
    ),
    "floats": ("k FLOAT PRIMARY KEY, v INT", "SELECT (CAST(seq AS SIGNED) - 500) / 7, seq FROM seq_1_to_1000"),
    "moments": (
        "k DATETIME(6) NOT NULL, t TIME(3) NOT NULL, v INT, UNIQUE KEY moment (k, t)",
        "SELECT TIMESTAMP'2020-01-01 00:00:00' + INTERVAL (seq DIV 100) HOUR, "
        "SEC_TO_TIME((CAST(seq % 100 AS SIGNED) - 50) * 777.125), seq FROM seq_1_to_1000",
    ),
    "enums": (
        "e ENUM('zebra','it''s','apple') NOT NULL, n INT NOT NULL, v INT, PRIMARY KEY (e, n)",
        "SELECT seq % 3 + 1, seq, seq FROM seq_1_to_1000",
    ),
    "sets": (
        "n INT NOT NULL, s SET('x','y') NOT NULL, v INT, PRIMARY KEY (n, s)",
        "SELECT seq DIV 3, seq % 3 + 1, seq FROM seq_1_to_1000",
    ),
    "hidden_beside": (
        "k INT NOT NULL, a INT NOT NULL, b INT NOT NULL, UNIQUE read_by (a, b), UNIQUE hidden (k) IGNORED",
        "SELECT seq, seq DIV 7, seq % 7 FROM seq_1_to_1000",
    ),
    "hidden_alone": (
        "k INT NOT NULL, t VARCHAR(9) NOT NULL, PRIMARY KEY (t(3)), UNIQUE hidden (k) IGNORED",
        "SELECT seq, CONCAT(LPAD(seq, 3, '0'), 'tail') FROM seq_1_to_990",
    ),
    "empty": ("k INT PRIMARY KEY, v INT", "SELECT 1, 1 FROM DUAL WHERE FALSE"),
    "one": ("k VARCHAR(10) PRIMARY KEY, v INT", "SELECT 'x', 1"),
    "nullable_unique": ("k INT NULL UNIQUE, v INT", "SELECT IF(seq % 10, NULL, seq), seq FROM seq_1_to_1000"),
}
_ONE_CHUNK = frozenset({"empty", "one", "nullable_unique", "hidden_alone"})


@pytest.mark.parametrize("name", _TABLES)
def test_every_row_is_in_exactly_one_chunk(source: Database, name: str) -> None:
    _make_table(source, name)
    plan = _plan_of(source, "shard", "t")
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    reader = ChunkSource(endpoint(source), SOURCE)
    try:
        chunks = list(TablePlanner(session, plan, 50).chunks())
        # A restart in the middle plans the rest to the same effect.
        resumed = [*chunks[:3], *TablePlanner(session, plan, 50).chunks(chunks[2])] if len(chunks) > 3 else chunks
        assert resumed[-1].is_last
        columns = bound_columns(plan.table)
        bounds = [chunk.upper for chunk in chunks[:-1]]
        seen: list[tuple[bytes, ...]] = []
        for chunk in chunks:
            with reader.exact(plan, chunk) as (_, batches):
                found = [row for batch in batches for row in batch]
            assert len(found) <= 101 or not columns, f"chunk {chunk} is too full"
            seen += found
            if len(chunks) > 1:
                keys = [tuple(row[index] for index in plan.key) for row in found]
                places = reader.places(columns, bounds, [key_bound(columns, key) for key in keys])
                assert places == [chunk.number] * len(found), "the server finds the keys' chunk again"
                assert reader.inside(plan, chunk, keys) == [True] * len(keys)
        total = count_rows(source, "shard.t")
        assert len(seen) == total
        assert len(set(seen)) == total
        if name in _ONE_CHUNK:
            assert len(chunks) == 1
        else:
            assert len(chunks) >= 5
    finally:
        session.close()
        reader.close()


def _touched(session: Session) -> int:
    """Rows that the session's statements have touched so far."""
    with session.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read_%'")
        return sum(int(value) for name, value in cursor.fetchall() if name != b"Handler_read_rnd_deleted")


def test_composite_keys_are_planned_and_read_by_index_range(source: Database) -> None:
    _make_table(source, "composite")
    plan = _plan_of(source, "shard", "t")
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    try:
        chunks = list(TablePlanner(session, plan, 50).chunks())
        planned = _touched(session)
        assert planned < 1300, "planning passes each of the 1000 rows about once"
        for chunk in chunks:
            before = _touched(session)
            rows = sum(len(batch) for batch in raw_rows(session, chunk_select(plan, chunk)))
            assert _touched(session) - before <= rows + 10, "a chunk reads its own rows only"
    finally:
        session.close()


# --- watermarks and raw reading


def test_a_consistent_snapshot_knows_its_position(source: Database) -> None:
    _make(source, "CREATE TABLE shard.t (k INT PRIMARY KEY)", "INSERT INTO shard.t VALUES (1)")
    if source.flavor == "mysql":
        pytest.skip("MySQL's does not")
    file, before = source.binlog_end()
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    try:
        position = open_consistent(session)
        source.execute("INSERT INTO shard.t VALUES (2)")
        assert position is not None
        assert (position.file, position.pos) == (file, before)
        assert [row for batch in raw_rows(session, b"SELECT k FROM shard.t") for row in batch] == [[b"1"]]
    finally:
        session.close()


def test_a_low_watermark_waits_for_no_writer_that_has_not_committed(source: Database) -> None:
    _make(source, "CREATE TABLE shard.t (k INT PRIMARY KEY)")
    writer = source.connect()
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True, read_timeout=20)
    try:
        writer.begin()
        with writer.cursor() as cursor:
            cursor.execute("INSERT INTO shard.t VALUES (1)")
        file, pos = source.binlog_end()
        position = low_watermark(session, server_info(session), SOURCE)
        assert (position.file, position.pos) == (file, pos)
    finally:
        session.close()
        writer.close()


def test_large_values_nulls_and_late_errors_come_through_raw(source: Database) -> None:
    source.execute("SET GLOBAL max_allowed_packet = 1073741824")
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    try:
        statement = b"SELECT REPEAT('x', 17000000), NULL, '' UNION ALL SELECT 'y', 'z', NULL"
        assert [row for batch in raw_rows(session, statement) for row in batch] == [
            [b"x" * 17_000_000, None, b""],
            [b"y", b"z", None],
        ]
        # The connection is in step again.
        assert [row for batch in raw_rows(session, b"SELECT 1 WHERE FALSE") for row in batch] == []
        late = "SELECT seq, IF(seq < 90000, 1, (SELECT 1 UNION SELECT seq)) FROM mysql.seq_1_to_100000"
        rows = 0
        with pytest.raises(pymysql.MySQLError) as caught:
            for batch in raw_rows(session, source.spelt(late).encode()):
                rows += len(batch)
        assert caught.value.args[0] == 1242
        assert [row for batch in raw_rows(session, b"SELECT 1") for row in batch] == [[b"1"]]
    finally:
        session.close()
        source.execute("SET GLOBAL max_allowed_packet = DEFAULT")


# --- whole snapshots


def _shards(source: Database, count: int) -> list[ShardTable]:
    return [ShardTable(source.connect, "shard_1", f"t_{number}") for number in range(1, count + 1)]


def _merging(target: Database, **snapshot: object) -> config_pb2.SubTaskConfig:
    config = subtask_config(target, **snapshot)
    config.routes.add(
        name="merge", schema_pattern="shard_*", table_pattern="t_*", target_schema="merged", target_table="t"
    )
    config.column_mappings.add(
        name="ids",
        schema_pattern="shard_*",
        table_pattern="t_*",
        source_column="id",
        target_column="id",
        expression="partition id",
        arguments=["1", "shard_", "t_"],
    )
    return config


def _judged(source: Database, target: Database, shards: list[ShardTable]) -> None:
    judged = [
        Shard(source.connect, shard.schema, shard.table, PartitionIds(1, 1, number))
        for number, shard in enumerate(shards, 1)
    ]
    verdict = compare(judged, Target(target.connect, "merged", "t"))
    assert verdict.differences == 0, str(verdict)


@pytest.mark.parametrize("position", ["auto", "watermark"])
def test_a_snapshot_under_writes_and_its_tail_give_the_source(
    source: Database, target: Database, tmp_path: Path, position: str
) -> None:
    shards = _shards(source, 2)
    create_tables(shards)
    for shard in shards:
        fill(shard, 6000, seed=3)
    source.execute("ANALYZE TABLE shard_1.t_1, shard_1.t_2")
    config = _merging(target, threads=3, chunk_rows=250, position=position)
    with Rig(source, target, tmp_path, config) as rig:
        with Writer(shards, seed=5, threads=2, pause_seconds=0.002) as writer:
            unit = rig.unit()
            outcome = unit.run(StopSignal())
            during = writer.counts.changes
            until(lambda: writer.counts.changes > during + 50, "more changes after the snapshot")
        assert outcome == Finished()
        status = unit.status()
        assert status.progress == "100.00 %"
        assert status.finished_chunks == status.total_chunks > 40
        assert status.finished_rows == status.total_rows
        assert rig.follow() > 50
    _judged(source, target, shards)


def test_string_keys_of_any_spelling_survive_snapshot_and_hand_over(
    source: Database, target: Database, tmp_path: Path
) -> None:
    _make_table(source, "case_insensitive")
    hooks = Hooks(tmp_path / "hooks")
    config = subtask_config(target, threads=1, chunk_rows=100, position="watermark")
    with Rig(source, target, tmp_path, config) as rig, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
        changes = iter(
            (
                # Between low watermark and SELECT, then between SELECT and high watermark, then after.
                "UPDATE shard.t SET k = UPPER(k), v = v + 1000 WHERE v BETWEEN 10 AND 30",
                "UPDATE shard.t SET k = CONCAT('zz ', k) WHERE v BETWEEN 100 AND 120",
                "UPDATE shard.t SET k = LOWER(k), v = v + 1000 WHERE v BETWEEN 200 AND 230",
                "UPDATE shard.t SET k = CONCAT('😀a', v) WHERE v BETWEEN 300 AND 330",
                "DELETE FROM shard.t WHERE v BETWEEN 400 AND 420",
                "INSERT INTO shard.t VALUES ('NAME 401', 7), ('name 402  ', 8), ('😀', 9)",
                "REPLACE INTO shard.t VALUES ('NAME 500', 7), ('name 777  ', 8)",
                "UPDATE shard.t SET k = CONCAT('M', k) WHERE v BETWEEN 600 AND 640",
            )
        )
        hooks.hold("snapshot.after_low")
        hooks.hold("snapshot.after_select")
        spark = Threads()
        unit = rig.unit(spark)
        outcome: list[object] = []
        run = threading.Thread(target=lambda: outcome.append(unit.run(StopSignal())))
        run.start()
        for chunk in range(4):
            for moment, following in (
                ("snapshot.after_low", "snapshot.after_select"),
                ("snapshot.after_select", "snapshot.after_low"),
            ):
                hooks.reached(moment)
                source.execute(next(changes))
                if chunk < 3 or moment == "snapshot.after_low":
                    hooks.hold(following)
                hooks.release(moment)
        hooks.release_all()
        run.join(120)
        assert outcome == [Finished()]
        source.execute(
            "UPDATE shard.t SET k = CONCAT(k, ' '), v = v + 1 WHERE v < 50", "DELETE FROM shard.t WHERE v > 980"
        )
        assert rig.follow() > 0
    wanted = source.query("SELECT HEX(k), v FROM shard.t ORDER BY 1, 2")
    assert target.query("SELECT HEX(k), v FROM shard.t ORDER BY 1, 2") == wanted


def test_tables_without_key_engine_versions_or_rows(source: Database, target: Database, tmp_path: Path) -> None:
    _make(
        source,
        "CREATE TABLE shard.no_key (a INT, b VARCHAR(40))",
        "INSERT INTO shard.no_key SELECT seq % 10, IF(seq % 3, 'x', NULL) FROM seq_1_to_5000",
        "CREATE TABLE shard.flat (k INT PRIMARY KEY, b VARCHAR(40)) ENGINE=Aria",
        "INSERT INTO shard.flat SELECT seq, LEFT(SHA2(seq, 256), 32) FROM seq_1_to_3000",
        "CREATE TABLE shard.empty (k INT PRIMARY KEY, b VARCHAR(20))",
    )
    config = subtask_config(target, threads=2, chunk_rows=100, position="watermark")
    with Rig(source, target, tmp_path, config) as rig:
        assert rig.run() == Finished()
        source.execute(
            "INSERT INTO shard.no_key VALUES (1, 'late'), (1, 'late')",
            "DELETE FROM shard.no_key WHERE a = 3 LIMIT 7",
            "UPDATE shard.flat SET b = 'changed' WHERE k < 10",
            "INSERT INTO shard.empty VALUES (1, 'first')",
        )
        assert rig.follow() == 2 + 7 + 9 + 1
    for name, order in (("no_key", "a, b"), ("flat", "k"), ("empty", "k")):
        statement = f"SELECT * FROM shard.{name} ORDER BY {order}"
        assert target.query(statement) == source.query(statement)


# --- restarts and zombies


def _prepared(source: Database, rows: int = 3000) -> list[ShardTable]:
    shards = _shards(source, 2)
    create_tables(shards)
    for shard in shards:
        fill(shard, rows, seed=3)
    source.execute("ANALYZE TABLE shard_1.t_1, shard_1.t_2")
    return shards


def _records(target: Database) -> dict[tuple[object, object], tuple[object, ...]]:
    """Loaded chunks: (shard, number) → everything else."""
    found = target.query(f"SELECT * FROM {META}.snapshot_chunk WHERE state = 1")
    return {(row[2], row[3]): row for row in found}


def test_a_restart_loads_only_the_chunks_that_are_left(source: Database, target: Database, tmp_path: Path) -> None:
    shards = _prepared(source)
    hooks = Hooks(tmp_path / "hooks")
    with Rig(source, target, tmp_path, _merging(target, threads=2, chunk_rows=100)) as rig:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
            stop = StopSignal()
            outcome: list[object] = []
            unit = rig.unit()
            run = threading.Thread(target=lambda: outcome.append(unit.run(stop)))
            run.start()
            until(lambda: unit.status().finished_chunks >= 5, "five chunks are loaded")
            hooks.hold("snapshot.before_commit")
            hooks.reached("snapshot.before_commit")
            stop.set()
            hooks.release_all()
            run.join(60)
        assert outcome == [Stopped()]
        before = _records(target)
        assert 5 <= len(before) < 60
        rows_before = count_rows(target, "merged.t")
        again = rig.unit()
        assert again.run(StopSignal()) == Finished()
        after = _records(target)
        assert {key: after[key] for key in before} == before, "what was loaded was not loaded again"
        assert again.status().finished_chunks == len(after) == again.status().total_chunks
        assert rows_before < count_rows(target, "merged.t") == 6000
        # A restart right after the end finds nothing to do.
        assert rig.unit(_NoSpark()).run(StopSignal()) == Finished()
    _judged(source, target, shards)


class _NoSpark(Threads):
    def run(self, name: str, count: int, body: object, stop: StopSignal) -> list[TaskOutcome]:
        raise AssertionError("there is nothing left to read")


def _read_in_process(spec: ReaderSpec, hooks: str) -> None:
    os.environ["SHARDMERGE_HOOKS"] = hooks
    who = relay_pb2.TaskIdentity(task=TASK, source=SOURCE, epoch=spec.epoch, index=0)
    read_chunks(spec, GrpcLink(spec.address, who, os.getpid()))


class _Elsewhere(Threads):
    """Runs reader 0 in a process that is killed when it stands before its first commit; then reports its loss."""

    def __init__(self, rig: Rig, hooks: Hooks, moment: str) -> None:
        self._rig, self._hooks, self._moment = rig, hooks, moment

    def run(self, name: str, count: int, body: object, stop: StopSignal) -> list[TaskOutcome]:
        self._hooks.hold(self._moment)
        spec = self._rig.spec()
        child = multiprocessing.get_context("spawn").Process(
            target=_read_in_process, args=(spec, str(self._hooks.directory))
        )
        child.start()
        [pid] = self._hooks.reached(self._moment)
        assert pid == child.pid
        os.kill(pid, signal.SIGKILL)
        child.join()
        self._hooks.release_all()
        lost = errors.worker.SPARK_TASK_LOST(job=name, reason="killed")
        return [TaskFailed(lost)] * count


@pytest.mark.parametrize("moment", ["snapshot.before_commit", "snapshot.after_commit"])
def test_a_reader_that_is_killed_leaves_no_half_chunk(
    source: Database, target: Database, tmp_path: Path, moment: str
) -> None:
    shards = _prepared(source, 1000)
    hooks = Hooks(tmp_path / "hooks")
    with Rig(source, target, tmp_path, _merging(target, threads=1, chunk_rows=100)) as rig:
        unit = rig.unit(_Elsewhere(rig, hooks, moment))
        outcome = unit.run(StopSignal())
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.worker.SPARK_TASK_LOST
        loaded = len(_records(target))
        assert loaded == (1 if moment.endswith("after_commit") else 0)
        assert rig.run() == Finished()
    _judged(source, target, shards)


def test_a_zombie_of_an_older_epoch_commits_nothing(source: Database, target: Database, tmp_path: Path) -> None:
    shards = _prepared(source, 1000)
    hooks = Hooks(tmp_path / "hooks")
    with Rig(source, target, tmp_path, _merging(target, threads=1, chunk_rows=100)) as rig:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
            hooks.hold("snapshot.before_commit")
            outcome: list[object] = []
            unit = rig.unit()
            run = threading.Thread(target=lambda: outcome.append(unit.run(StopSignal())))
            run.start()
            hooks.reached("snapshot.before_commit")
            rig.take_over()
            hooks.release_all()
            run.join(60)
        [ended] = outcome
        assert isinstance(ended, Failed)
        assert ended.error.spec is errors.replicate.FENCED
        assert _records(target) == {}
        assert count_rows(target, "merged.t") == 0
        assert rig.run() == Finished()
    _judged(source, target, shards)


def test_a_second_attempt_at_a_committed_chunk_loads_nothing(
    source: Database, target: Database, tmp_path: Path
) -> None:
    _prepared(source, 300)
    with Rig(source, target, tmp_path, _merging(target, threads=1, chunk_rows=100)) as rig:
        assert rig.run() == Finished()

        class Again:
            """A link that hands out a chunk that is loaded already; nothing was written since."""

            def __init__(self) -> None:
                self.left = [relay_pb2.ChunkSpec(source_schema="shard_1", source_table="t_1", number=0, upper=[b"101"])]
                self.reports: list[relay_pb2.ChunkReport] = []

            def take(self) -> relay_pb2.TakeChunkResponse:
                if self.left:
                    return relay_pb2.TakeChunkResponse(chunk=self.left.pop())
                return relay_pb2.TakeChunkResponse(finished=True)

            def report(self, report: relay_pb2.ChunkReport) -> bool:
                self.reports.append(report)
                return False

            def locate(self, position: SourcePosition) -> Located:
                return Located("relay", RelayOffset(1, position.pos))

            def subscribe(self, start: RelayOffset, until: RelayOffset) -> Iterator[relay_pb2.RelayFrame]:
                raise AssertionError(start, until)

            def close(self) -> None:
                pass

        link = Again()
        read_chunks(rig.spec(), link)
        [report] = link.reports
        assert report.HasField("high")
        assert report.rows == 100
        assert count_rows(target, "merged.t") == 600


def test_a_stop_is_obeyed_while_somebody_holds_the_table(source: Database, target: Database, tmp_path: Path) -> None:
    shards = _prepared(source, 300)
    with Rig(source, target, tmp_path, _merging(target, threads=1, chunk_rows=100)) as rig:
        unit, stop, outcome = rig.unit(), StopSignal(), list[object]()
        holder = source.connect()
        try:
            with holder.cursor() as cursor:
                cursor.execute("LOCK TABLES shard_1.t_1 WRITE")
            run = threading.Thread(target=lambda: outcome.append(unit.run(stop)))
            run.start()
            waits = "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE LIKE '%metadata lock%'"
            until(lambda: bool(source.query(waits)), "the planner waits for the table")
            stop.set()
            run.join(30)
            assert outcome == [Stopped()]
        finally:
            holder.close()
        assert rig.run() == Finished()
    _judged(source, target, shards)


# --- errors that stop


def test_a_collision_of_two_shards_names_table_and_key(source: Database, target: Database, tmp_path: Path) -> None:
    _make(
        source,
        "CREATE TABLE shard_1.t_1 (id BIGINT PRIMARY KEY, v INT)",
        "CREATE TABLE shard_1.t_2 (id BIGINT PRIMARY KEY, v INT)",
        "INSERT INTO shard_1.t_1 SELECT seq, seq FROM seq_1_to_500",
        "INSERT INTO shard_1.t_2 SELECT seq + 1000, seq FROM seq_1_to_500",
        "INSERT INTO shard_1.t_2 VALUES (77, 1)",
        schema="shard_1",
    )
    config = _merging(target, threads=1, chunk_rows=100)
    del config.column_mappings[:]
    with Rig(source, target, tmp_path, config) as rig:
        outcome = rig.run()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.COLLISION
    assert not outcome.error.spec.retryable
    values = outcome.error.values
    assert (values["schema"], values["table"], values["key"]) == ("shard_1", "t_2", "77")
    assert (values["target_schema"], values["target_table"]) == ("merged", "t")
    # The rows of the first shard are as they were, and nothing of the refused chunk stayed.
    assert target.query("SELECT v FROM merged.t WHERE id = 77") == [(77,)]
    assert count_rows(target, "merged.t") % 100 == 0


def test_a_collision_in_a_further_unique_key_is_told(source: Database, target: Database, tmp_path: Path) -> None:
    _make(
        source,
        "CREATE TABLE shard_1.t_1 (id BIGINT PRIMARY KEY, mail VARCHAR(40) NOT NULL UNIQUE)",
        "CREATE TABLE shard_1.t_2 (id BIGINT PRIMARY KEY, mail VARCHAR(40) NOT NULL UNIQUE)",
        "INSERT INTO shard_1.t_1 VALUES (1, 'a@x'), (2, 'b@x')",
        "INSERT INTO shard_1.t_2 VALUES (1, 'c@x'), (2, 'B@X')",
        schema="shard_1",
    )
    with Rig(source, target, tmp_path, _merging(target, threads=1)) as rig:
        outcome = rig.run()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.COLLISION
    assert "mail" in outcome.error.message


def test_a_table_altered_under_the_snapshot_stops_it(source: Database, target: Database, tmp_path: Path) -> None:
    _make(source, "CREATE TABLE shard.t (k INT PRIMARY KEY, v INT)", "INSERT INTO shard.t VALUES (1, 2)")
    with Rig(source, target, tmp_path, subtask_config(target, threads=1)) as rig:
        source.execute("ALTER TABLE shard.t MODIFY v BIGINT")
        unit = rig.unit()
        outcome = unit.run(StopSignal())
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.snapshot.STRUCTURE_CHANGED
        assert "bigint" in outcome.error.message
        source.execute("DROP TABLE shard.t")
        gone = unit.run(StopSignal())
        assert isinstance(gone, Failed)
        assert gone.error.spec is errors.snapshot.TABLE_GONE


def test_a_row_larger_than_the_targets_packet_stops(source: Database, target: Database, tmp_path: Path) -> None:
    _make(
        source,
        "CREATE TABLE shard.t (k INT PRIMARY KEY, v LONGBLOB)",
        "INSERT INTO shard.t SELECT seq, REPEAT('x', 1000) FROM seq_1_to_300",
        "INSERT INTO shard.t VALUES (301, REPEAT('y', 3000000))",
    )
    target.execute("SET GLOBAL max_allowed_packet = 4194304")
    try:
        with Rig(source, target, tmp_path, subtask_config(target, threads=1)) as rig:
            outcome = rig.run()
            assert isinstance(outcome, Failed)
            assert outcome.error.spec is errors.snapshot.ROW_TOO_LARGE
            assert outcome.error.values["key"] == "301"
            target.execute("SET GLOBAL max_allowed_packet = DEFAULT")
            assert rig.run() == Finished()
    finally:
        target.execute("SET GLOBAL max_allowed_packet = DEFAULT")
    assert target.query("SELECT SUM(LENGTH(v)) FROM shard.t") == source.query("SELECT SUM(LENGTH(v)) FROM shard.t")


def test_lost_connections_are_made_anew(source: Database, target: Database, tmp_path: Path) -> None:
    shards = _prepared(source, 1500)
    hooks = Hooks(tmp_path / "hooks")
    with Rig(source, target, tmp_path, _merging(target, threads=1, chunk_rows=100)) as rig:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
            hooks.hold("snapshot.before_commit")
            outcome: list[object] = []
            unit = rig.unit()
            run = threading.Thread(target=lambda: outcome.append(unit.run(StopSignal())))
            run.start()
            hooks.reached("snapshot.before_commit")
            mine = "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND COMMAND = 'Sleep'"
            for (number,) in target.query(mine):
                target.execute(f"KILL {number}")
            hooks.release_all()
            run.join(120)
        assert outcome == [Finished()]
    _judged(source, target, shards)


def test_chunk_zero_is_open_below_and_the_last_above(source: Database) -> None:
    _make(
        source,
        "CREATE TABLE shard.t (k INT PRIMARY KEY)",
        "INSERT INTO shard.t SELECT seq FROM seq_1_to_500",
        "ANALYZE TABLE shard.t",
    )
    plan = _plan_of(source, "shard", "t")
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    try:
        chunks = list(TablePlanner(session, plan, 100).chunks())
    finally:
        session.close()
    assert chunks[0] == Chunk(0, (), (b"101",))
    assert chunks[-1] == Chunk(4, (b"401",), ())
