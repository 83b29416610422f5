"""Tests targets that get all text as UTF-8: a client reads the same text at both sides, through snapshot and stream.

A MariaDB whose columns are utf8mb4 is the target, as a stand-in for a server that lacks the sources' character sets.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors.spec import ErrorSpec
from shardmerge.worker.binlog.rows.characters.character_set import NoCharacter, character_set
from shardmerge.worker.binlog.rows.characters.multi_byte import MULTI_BYTE, multi_byte_table
from shardmerge.worker.binlog.rows.characters.single_byte import SINGLE_BYTE
from shardmerge.worker.core.mysql.connection import Side, connect
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import RowFilter, TablePlan
from shardmerge.worker.replicate.unit import ReplicateUnit
from shardmerge.worker.rules import Rules
from shardmerge.worker.unit.contract import Failed, Stopped
from shardmerge.worker.verify.precheck.target.expressions import check_expressions
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import endpoint, subtask_config
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.pair import KINDS, emptied
from tests.support.plans import integer, table_plan, text
from tests.support.wait import until

UNICODE = ("ucs2", "utf16", "utf16le", "utf32", "utf8mb4")
ANY = "aß'\\中€\ue000"
SAMPLE = 60


@pytest.fixture(scope="module", params=KINDS)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Database]]:
    folder = tmp_path_factory.mktemp("as_utf8")
    made = [KINDS[request.param](folder / "source", 101), MariaDB(folder / "target", 201)]
    try:
        for server in made:
            server.start()
        yield made
    finally:
        for server in made:
            server.stop()


@pytest.fixture
def pair(servers: list[Database], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Database, Database]]:
    """Provide both, and check that no statement for the target has text in another character set."""
    plain = Rules.plan

    def plan(self: Rules, shard: int, source: str, table: Table) -> TablePlan:
        return replace(plain(self, shard, source, table), text_as_utf8=True)

    monkeypatch.setattr(Rules, "plan", plan)
    source, target = map(emptied, servers)
    source.execute("CREATE DATABASE shard")
    target.execute("CREATE DATABASE shard")
    target.execute("SET GLOBAL log_output = 'TABLE'", "TRUNCATE TABLE mysql.general_log", "SET GLOBAL general_log = ON")
    yield source, target
    target.execute("SET GLOBAL general_log = OFF")
    assert statements(target, "_[a-z0-9]+ X'") == []


def statements(target: Database, pattern: str) -> list[tuple[object, ...]]:
    """Return the first statement that the target received and that matches ``pattern``."""
    return target.query(
        "SELECT LEFT(argument, 500) FROM mysql.general_log WHERE argument NOT LIKE '%general_log%' "
        f'AND argument RLIKE "{pattern}" LIMIT 1'
    )


def codes(charset: str) -> list[bytes]:
    """Return all codes of a single-byte character set, or some."""
    one = character_set(charset)
    assert one is not None
    if charset in UNICODE:
        texts = [*ANY, *(["😀"] if charset != "ucs2" else [])]
        return [data for data in map(one.encoded, texts) if data is not None]
    if charset in MULTI_BYTE:
        return random.Random(5).sample(sorted(multi_byte_table(charset).characters), SAMPLE)
    found: list[bytes] = []
    for byte in range(256):
        try:
            one.decoded(bytes([byte]))
        except NoCharacter:
            continue
        found.append(bytes([byte]))
    return found


def inserts(charset: str, first: int) -> str:
    """Return an INSERT of a row for each code, and one with all of them."""
    found = codes(charset)
    rows = [(code, code + code, code) for code in found] + [(b"", b"".join(found), b"".join(found[::-1]))]
    values = [(str(first + at), *(f"_{charset} X'{text.hex()}'" for text in row)) for at, row in enumerate(rows)]
    return f"INSERT INTO shard.t_{charset} VALUES " + ",".join(f"({','.join(row)})" for row in values)


def running(rig: LaneRig, config: config_pb2.SubTaskConfig) -> Run:
    """Return a run that has copied the history."""
    run = rig.begin(config)
    until(lambda: isinstance(run.unit, ReplicateUnit) or run.ended, "the snapshot is over")
    assert not run.ended, run.join()
    return run


def assert_same_text(source: Database, target: Database, table: str, order: str) -> None:
    ours, theirs = (server.query(f"SELECT * FROM shard.{table} ORDER BY {order}") for server in (source, target))
    assert sorted(map(repr, theirs)) == sorted(map(repr, ours)), table
    assert ours


@pytest.mark.turns
def test_a_client_reads_the_same_text_of_every_character_set(pair: tuple[Database, Database], tmp_path: Path) -> None:
    source, target = pair
    has = {str(row[0]) for row in source.query("SHOW CHARACTER SET")}
    charsets = sorted({*SINGLE_BYTE, *MULTI_BYTE, *UNICODE} & has)
    columns = "id INT PRIMARY KEY, c CHAR(2), v VARCHAR(700), x TEXT"
    for name in charsets:
        source.execute(
            "SET sql_mode = ''",
            f"CREATE TABLE shard.t_{name} ({columns}) CHARACTER SET {name}",
            inserts(name, 0),
        )
        target.execute(f"CREATE TABLE shard.t_{name} ({columns}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    config = subtask_config(target, threads=2, chunk_rows=100)
    config.replicate.lanes = 2
    with LaneRig(source, target, tmp_path, config) as rig:
        run = running(rig, config)
        for name in charsets:
            assert_same_text(source, target, f"t_{name}", "id")
            source.execute(
                "SET sql_mode = ''",
                inserts(name, 1000),
                f"UPDATE shard.t_{name} SET v = x, x = v, c = '' WHERE id % 3 = 0",
                f"DELETE FROM shard.t_{name} WHERE id % 7 = 1",
            )
        run.until_synced()
        for name in charsets:
            assert_same_text(source, target, f"t_{name}", "id")
        assert run.stop() == Stopped()
    assert statements(target, "^INSERT INTO `shard`")


def test_keys_keyless_tables_and_mappings(pair: tuple[Database, Database], tmp_path: Path) -> None:
    source, target = pair
    tables = {
        "by_key": "k VARCHAR(20) COLLATE {} NOT NULL PRIMARY KEY, n INT",
        "no_key": "v VARCHAR(40), w TEXT, n INT",
        "mapped": "id INT PRIMARY KEY, before_it VARCHAR(40), after_it VARCHAR(40)",
    }
    for name, columns in tables.items():
        source.execute(f"CREATE TABLE shard.{name} ({columns.format('latin1_bin')}) CHARACTER SET latin1")
        wider = columns.format("utf8mb4_bin").replace("VARCHAR(40)", "VARCHAR(50)")
        target.execute(f"CREATE TABLE shard.{name} ({wider}) CHARACTER SET utf8mb4")

    def fill(first: int) -> None:
        numbers = range(first, first + 200)
        source.execute(
            "INSERT INTO shard.by_key VALUES " + ",".join(f"('ß{at:04}ü',{at})" for at in numbers),
            "INSERT INTO shard.no_key VALUES " + ",".join(f"('é{at % 9}', 'ä''\\\\', {at % 5})" for at in numbers),
            "INSERT INTO shard.mapped VALUES " + ",".join(f"({at},'ö{at}','plain')" for at in numbers),
        )

    fill(0)
    config = subtask_config(target, threads=2, chunk_rows=50, position="watermark")
    config.replicate.lanes = 2
    config.column_mappings.extend(
        config_pb2.ColumnMappingRule(
            name=expression,
            schema_pattern="shard",
            table_pattern="mapped",
            source_column=column,
            target_column=column,
            expression=expression,
            arguments=["中-"],  # latin1 lacks it
        )
        for expression, column in (("add prefix", "before_it"), ("add suffix", "after_it"))
    )
    with LaneRig(source, target, tmp_path, config) as rig:
        run = running(rig, config)
        fill(1000)
        source.execute(
            "UPDATE shard.by_key SET n = -n WHERE n % 3 = 0",
            "UPDATE shard.by_key SET k = CONCAT('à', n) WHERE n % 5 = 1",
            "DELETE FROM shard.by_key WHERE n % 7 = 2",
            "UPDATE shard.no_key SET w = CONCAT(w, 'ß') WHERE v = 'é3'",
            "DELETE FROM shard.no_key WHERE v = 'é4' AND n = 2",
            "UPDATE shard.mapped SET before_it = 'ÿ' WHERE id % 2",
        )
        run.until_synced()
        for name, order in (("by_key", "n"), ("no_key", "v, w, n")):
            assert_same_text(source, target, name, order)
        expected = source.query(
            "SELECT id, CONCAT('中-', CONVERT(before_it USING utf8mb4)), "
            "CONCAT(CONVERT(after_it USING utf8mb4), '中-') FROM shard.mapped ORDER BY id"
        )
        assert target.query("SELECT * FROM shard.mapped ORDER BY id") == expected
        assert run.stop() == Stopped()


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize(
    ("column", "charset", "value", "spec", "named"),
    [
        ("id INT PRIMARY KEY, v VARCHAR(20)", "cp1250", "E181", errors.decode.NO_CHARACTER, {"v", "81", "E181"}),
        ("id INT, v VARCHAR(20) PRIMARY KEY", "cp932", "879C", errors.decode.SECOND_CODE, {"v", "81BE", "879C"}),
    ],
)
def test_what_cannot_be_sent_stops_the_task_before_the_row(
    pair: tuple[Database, Database],
    tmp_path: Path,
    *,
    in_stream: bool,
    column: str,
    charset: str,
    value: str,
    spec: ErrorSpec,
    named: set[str],
) -> None:
    source, target = pair
    source.execute(f"CREATE TABLE shard.odd ({column}) CHARACTER SET {charset}")
    target.execute(f"CREATE TABLE shard.odd ({column}) CHARACTER SET utf8mb4")
    source.execute("INSERT INTO shard.odd VALUES (0, 'x')")
    odd = f"INSERT INTO shard.odd VALUES (1, _{charset} X'{value}')"
    if not in_stream:
        source.execute(odd)
    config = subtask_config(target)
    with LaneRig(source, target, tmp_path, config) as rig:
        if in_stream:
            run = running(rig, config)
            source.execute(odd)
        else:
            run = rig.begin(config)
        outcome = run.join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is spec
    assert {"shard", "odd", charset, *named} <= set(outcome.error.values.values())
    assert (" in the rows at " in str(outcome.error)) == in_stream
    assert target.query("SELECT id FROM shard.odd WHERE id") == []


def test_the_pre_check_refuses_an_expression_on_text_whose_character_set_the_target_lacks(
    pair: tuple[Database, Database],
) -> None:
    session = connect(endpoint(pair[1]), Side.TARGET, name="target")
    try:
        for charset, refusals in (("utf8mb4", 0), ("latin1", 1)):
            column = replace(text("v", f"{charset}_general_ci"), charset=charset)
            plan = replace(table_plan((integer(), column), (0,)), filters=(RowFilter("r", (1,), insert="v = 'x'"),))
            assert list(check_expressions("s1", session, [plan])) == []
            found = list(check_expressions("s1", session, [replace(plan, text_as_utf8=True)]))
            assert len(found) == refusals
            assert all("lacks character set latin1 of column v" in one.error_msg for one in found)
    finally:
        session.close()
