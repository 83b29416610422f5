"""Tests statements that change rows of a table while its chunks are read: none of them may be lost (I4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ErrorSpec
from shardmerge.worker.core.mysql.connection import Session, Side, current_position, server_info
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.relay.model import AtStatement
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.snapshot.source import chunk_source as reading
from shardmerge.worker.snapshot.source.watermarks import open_consistent
from shardmerge.worker.unit.contract import Failed, Finished, Outcome
from tests.integration.snapshot_rig import Rig, held_at, subtask_config
from tests.support.database import Database
from tests.support.hooks import Hooks
from tests.support.pair import KINDS, emptied, started_pair


@pytest.fixture(scope="module", params=KINDS)
def servers(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Database, Database]]:
    """Provide the servers; the kind of the target is less important, because the statements run at the source."""
    with started_pair(tmp_path_factory.mktemp("statements"), KINDS[request.param]) as pair:
        yield pair


@pytest.fixture
def source(servers: tuple[Database, Database]) -> Database:
    return emptied(servers[0])


@pytest.fixture
def target(servers: tuple[Database, Database]) -> Database:
    return emptied(servers[1])


def _make(source: Database) -> None:
    source.execute(
        "CREATE DATABASE other",
        "CREATE TABLE other.t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO other.t VALUES (7, 7), (8, 8)",
        "CREATE DATABASE shard",
        "USE shard",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) "
        "(PARTITION low VALUES LESS THAN (100), PARTITION high VALUES LESS THAN MAXVALUE)",
        source.spelt("INSERT INTO t SELECT seq, seq FROM seq_1_to_300"),
        "ANALYZE TABLE t",
    )


def _read_with(rig: Rig, hooks: Hooks, meanwhile: Callable[[], None]) -> Outcome:
    """Run the snapshot; call ``meanwhile`` between the first chunk's SELECT and its high watermark."""
    with held_at("snapshot.after_select", rig, hooks) as outcome:
        meanwhile()
    [ended] = outcome
    return ended


@pytest.mark.parametrize(
    "statements",
    [
        ("TRUNCATE TABLE shard.t",),
        ("TRUNCATE TABLE shard.t", "INSERT INTO shard.t VALUES (5, 50)"),
        ("CREATE TABLE other.n LIKE other.t", "RENAME TABLE shard.t TO other.old, other.n TO shard.t"),
        ("ALTER TABLE shard.t EXCHANGE PARTITION low WITH TABLE other.t",),
        ("ALTER TABLE shard.t TRUNCATE PARTITION high",),
        ("SET SESSION binlog_format = STATEMENT", "UPDATE shard.t SET v = -1 WHERE id > 50"),
    ],
    ids=lambda statements: statements[-1].split(" WHERE")[0],
)
def test_a_chunk_is_read_again_after_a_statement_on_its_table(
    source: Database, target: Database, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    _make(source)
    with Rig(source, target, tmp_path, subtask_config(target, threads=1, position="watermark")) as rig:
        assert _read_with(rig, Hooks(tmp_path / "hooks"), lambda: source.execute(*statements)) == Finished()
        rig.follow()
    wanted = source.query("SELECT * FROM shard.t ORDER BY id")
    assert target.query("SELECT * FROM shard.t ORDER BY id") == wanted


def _counting(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> list[str]:
    """Call ``meanwhile`` after every chunk's SELECT from now on; return the list of moments reached so far."""
    moments: list[str] = []

    def reach(moment: str) -> None:
        if moment == "snapshot.after_select":
            moments.append(moment)
            meanwhile()

    monkeypatch.setattr(reading.failpoints, "hit", reach)
    return moments


def test_statements_without_end_stop_the_unit_for_a_later_try(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(source)
    with Rig(source, target, tmp_path, subtask_config(target, threads=1, position="watermark")) as rig:
        moments = _counting(monkeypatch, lambda: source.execute("TRUNCATE TABLE shard.t"))
        outcome = rig.run()
        assert len(moments) > 1, "the reader itself has tried again"
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.snapshot.STATEMENT_UNDER_CHUNK
        assert outcome.error.spec.retryable
        values = outcome.error.values
        assert (values["source"], values["tables"]) == ("s1", "shard.t")
        assert values["statement"] == "TRUNCATE TABLE shard.t"
        assert "mysql-bin." in values["position"]


def test_statements_on_other_tables_do_not_matter(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(source)
    config = subtask_config(target, threads=1, position="watermark")
    config.online_ddl.shadow_tables.append("^_(.+)_gho$")
    statements = (
        "TRUNCATE TABLE other.t",
        "CREATE TABLE shard._t_gho LIKE shard.t",
        "ALTER TABLE shard._t_gho ADD x INT",
        "INSERT INTO shard.t VALUES (1000, 1)",
    )
    with Rig(source, target, tmp_path, config) as rig:
        moments = _counting(monkeypatch, lambda: source.execute(*statements))
        assert rig.run() == Finished()
        assert len(moments) == 1
    assert target.query("SELECT COUNT(*) FROM shard.t") == [(301,)]


@pytest.mark.parametrize("moment", ["in the first read", "between two chunks"])
@pytest.mark.parametrize(
    "statements",
    [
        ("TRUNCATE TABLE shard.t",),
        ("CREATE TABLE other.n LIKE other.t", "RENAME TABLE shard.t TO other.old, other.n TO shard.t"),
        ("ALTER TABLE shard.t EXCHANGE PARTITION low WITH TABLE other.t",),
        ("SET SESSION binlog_format = STATEMENT", "UPDATE shard.t SET v = -1 WHERE id > 50"),
    ],
    ids=lambda statements: statements[-1].split(" WHERE")[0],
)
def test_beside_exact_positions_a_statement_is_seen_or_met_in_the_stream(
    source: Database,
    target: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    statements: tuple[str, ...],
    moment: str,
) -> None:
    """Either a consistent snapshot's position, and so the lowest high watermark, is before the statement; or every
    chunk has read its effect."""
    if source.flavor == "mysql":
        pytest.skip("MySQL's does not tell its position")
    _make(source)
    opened: list[SourcePosition | None] = []
    after = 1 if moment == "in the first read" else 2

    def open_and_change(session: Session) -> SourcePosition | None:
        opened.append(open_consistent(session))
        if len(opened) == after + 1:  # the first call only checks whether the server reports its position
            source.execute(*statements)
        return opened[-1]

    with Rig(source, target, tmp_path, subtask_config(target, threads=1, chunk_rows=100)) as rig:
        monkeypatch.setattr(reading, "open_consistent", open_and_change)
        outcome = rig.run()
        assert outcome == Finished()
        assert len(opened) > after
        stop = StopSignal()
        session = rig.session(Side.SOURCE)
        end = rig.relay.locate(current_position(session, server_info(session)), 60, stop)
        session.close()
        start = rig.handover().lowest[1]
        met = [
            item.statement.text
            for item in rig.relay.subscribe(start, end, RoutedScope(TableScope(rig.rules)), stop)
            if isinstance(item, AtStatement)
        ]
    same = target.query("SELECT * FROM shard.t ORDER BY id") == source.query("SELECT * FROM shard.t ORDER BY id")
    assert same or statements[-1] in met


@pytest.mark.parametrize("way", ["global", "init_connect", "session"])
def test_a_limit_on_selects_at_the_source_cuts_nothing(
    source: Database, target: Database, tmp_path: Path, way: str
) -> None:
    _make(source)
    config = subtask_config(target, threads=1)
    rig = Rig(source, target, tmp_path, config)
    if way == "session":
        session = (("sql_select_limit", "10"), ("sql_big_selects", "0"), ("max_join_size", "1"))
        rig.source_endpoint = type(rig.source_endpoint)(source.host, source.port, "root", session=session)
    try:
        if way == "global":
            source.execute("SET GLOBAL sql_select_limit = 10")
            source.execute("SET GLOBAL max_join_size = 1")
        with rig:
            if way == "init_connect":
                source.execute("SET GLOBAL init_connect = 'SET sql_select_limit = 10'")
                source.execute(
                    "DROP USER IF EXISTS reader@'127.0.0.1'",
                    "CREATE USER reader@'127.0.0.1' IDENTIFIED BY ''",
                    "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'127.0.0.1'",
                )
                rig.source_endpoint = type(rig.source_endpoint)(source.host, source.port, "reader")
            assert rig.run() == Finished()
    finally:
        for name in ("sql_select_limit", "max_join_size", "init_connect"):
            source.execute(f"SET SESSION sql_big_selects = 1, GLOBAL {name} = DEFAULT")
    assert target.query("SELECT COUNT(*) FROM shard.t") == [(300,)]


def _filtered(target: Database, action: int, *events: str) -> config_pb2.SubTaskConfig:
    config = subtask_config(target, threads=1, position="watermark", chunk_rows=100)
    config.event_filters.add(name="f", schema_pattern="shard*", table_pattern="*", events=events, action=action)  # pyright: ignore[reportArgumentType]
    return config


def test_an_ignored_truncate_under_a_chunk_takes_no_row_from_it(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were read before it stay; rows that are inserted after it are copied too."""
    _make(source)
    done: list[str] = []

    def truncate() -> None:
        if not done:
            done.append("TRUNCATE")
            source.execute(
                "UPDATE shard.t SET v = -1 WHERE id = 1",
                "TRUNCATE TABLE shard.t",
                "INSERT INTO shard.t VALUES (2, 20), (50, 1)",
            )

    with Rig(source, target, tmp_path, _filtered(target, config_pb2.FILTER_ACTION_IGNORE, "truncate table")) as rig:
        moments = _counting(monkeypatch, truncate)
        assert rig.run() == Finished()
        chunks = target.query("SELECT COUNT(*) FROM dm_meta.snapshot_chunk")
        assert len(moments) == int(str(chunks[0][0])) > 1, "no chunk is read twice"
    kept = {int(str(key)): int(str(value)) for key, value in target.query("SELECT id, v FROM shard.t WHERE id <= 100")}
    assert kept.pop(1) == -1
    assert (kept.pop(2), kept.pop(50)) == (20, 1)
    assert kept == {number: number for number in range(3, len(kept) + 4) if number != 50}
    assert len(kept) >= 90


@pytest.mark.parametrize(
    ("event", "statement"),
    [
        ("truncate table", "TRUNCATE TABLE shard.t"),
        ("alter table", "ALTER TABLE shard.t ADD KEY (v)"),
        ("drop column", "ALTER TABLE shard.t DROP COLUMN v"),
        ("drop table", "DROP TABLE `shard`.`t` /* generated by server */"),  # the text that both servers log
    ],
)
def test_a_statement_that_a_filter_stops_before_stops_the_copy(
    source: Database, target: Database, tmp_path: Path, event: str, statement: str
) -> None:
    _make(source)
    with Rig(source, target, tmp_path, _filtered(target, config_pb2.FILTER_ACTION_ERROR, event)) as rig:
        outcome = _read_with(rig, Hooks(tmp_path / "hooks"), lambda: source.execute(statement))
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.ddl.STATEMENT_FILTERED
    assert (outcome.error.values["table"], outcome.error.values["statement"]) == ("shard.t", statement)
    assert "mysql-bin." in outcome.error.values["position"]


@pytest.mark.parametrize(
    ("statement", "spec"),
    [
        ("ALTER TABLE shard.t DROP COLUMN v", errors.snapshot.STRUCTURE_CHANGED),
        ("ALTER TABLE shard.t ADD COLUMN w INT", errors.snapshot.STRUCTURE_CHANGED),
        ("ALTER TABLE shard.t ADD KEY (v)", None),
        ("DROP TABLE shard.t", errors.snapshot.TABLE_GONE),
    ],
)
def test_an_ignored_statement_lets_no_row_be_read_in_another_form(
    source: Database, target: Database, tmp_path: Path, statement: str, spec: ErrorSpec | None
) -> None:
    """With any filter, the rows of one table are copied with one structure, or the copy stops with an error."""
    _make(source)
    with Rig(source, target, tmp_path, _filtered(target, config_pb2.FILTER_ACTION_IGNORE, "all ddl")) as rig:
        outcome = _read_with(rig, Hooks(tmp_path / "hooks"), lambda: source.execute(statement))
        if spec is None:
            assert outcome == Finished()
            return
        again = outcome if isinstance(outcome, Failed) and outcome.error.spec is spec else rig.run()
    assert isinstance(again, Failed)
    assert again.error.spec is spec, (outcome, again)
