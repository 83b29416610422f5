"""Tests the checks for keys that several shard tables have: sampled and proven, across two sources, on all servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shardmerge.master.precheck.duplicate_keys import KeyChecks
from shardmerge.master.state import State, parse
from shardmerge.master.workers.client import Workers
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import etcd_keys
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.etcd import Record, RecordSnapshot
from shardmerge.worker.verify.precheck import check_keys, read_keys
from tests.support.database import Database
from tests.support.pair import KINDS

PAIRS = {"mariadb": ("mariadb", "mariadb"), "mysql": ("mysql", "mysql"), "mixed": ("mariadb", "mysql")}


class Direct(Workers):
    """Returns the workers' answers without gRPC."""

    def call(self, worker: state_pb.WorkerRecord, method: object, request: Any, seconds: float) -> Any:
        assert isinstance(request, pb.CheckKeysRequest)
        return check_keys(request)

    def read_keys(self, worker: state_pb.WorkerRecord, request: pb.ReadKeysRequest) -> Iterator[pb.KeyBatch]:
        return read_keys(request)


class Pair:
    """Two sources, s1 and s2; the first one's server is also the target."""

    def __init__(self, servers: tuple[Database, Database], kind: str) -> None:
        self.servers, self.kind = servers, kind
        self.instances: tuple[str, str] = ("", "")

    @property
    def target(self) -> Database:
        return self.servers[0]

    def tables(self, definition: str, *more: str) -> None:
        """Create a shard table at each source: ``shard_<n>.t_<n>``; ``more``: statements at the target."""
        for server in self.servers:
            for schema in ("shard_1", "shard_2", "merged"):
                server.execute(f"DROP DATABASE IF EXISTS {schema}")
        for number, server in enumerate(self.servers, 1):
            server.execute(f"CREATE DATABASE shard_{number}", f"CREATE TABLE shard_{number}.t_{number} ({definition})")
        self.target.execute("CREATE DATABASE merged", *more)

    def fill(self, first: str, second: str) -> None:
        for number, (server, rows) in enumerate(zip(self.servers, (first, second), strict=True), 1):
            if rows:
                counted = server.spelt(rows.replace("FROM seq", f"FROM shard_{number}.seq"))
                server.execute(f"INSERT INTO shard_{number}.t_{number} {counted}")

    def subtasks(self, column: str = "id") -> list[config.SubTaskConfig]:
        made: list[config.SubTaskConfig] = []
        for number, instance in enumerate(self.instances, 1):
            subtask = config.SubTaskConfig(
                task="merge",
                source_id=f"s{number}",
                mode=config.TASK_MODE_ALL,
                meta_schema="dm_meta",
                target=_endpoint(self.target),
                block_allow_list=config.BlockAllowList(name="shards", do_dbs=["shard_*"]),
                routes=[
                    config.RouteRule(
                        name="r",
                        schema_pattern="shard_*",
                        table_pattern="t_*",
                        target_schema="merged",
                        target_table="t",
                    )
                ],
            )
            if instance:
                subtask.column_mappings.add(
                    name="m", schema_pattern="shard_*", table_pattern="t_*", source_column=column, target_column=column,
                    expression="partition id", arguments=[instance, "", ""],
                )  # fmt: skip
            made.append(subtask)
        return made

    def checked(
        self, *, proven: bool, ignored: str = "", bound: tuple[str, ...] = ("s1", "s2")
    ) -> list[pb.CheckResult]:
        subtasks = self.subtasks()
        for subtask in subtasks:
            if ignored:
                subtask.ignore_checking_items.append(ignored)
        return KeyChecks(_state(self.servers, bound), Direct(), 60).run(subtasks, subtasks, proven=proven)

    def codes(self, *, proven: bool) -> list[int]:
        """Return the codes of the results; [0]: all checks have passed."""
        return sorted({result.code for result in self.checked(proven=proven) if result.code}) or [0]


def _endpoint(server: Database) -> config.Endpoint:
    return config.Endpoint(host="127.0.0.1", port=server.port, user="root")


def _state(servers: tuple[Database, Database], bound: tuple[str, ...]) -> State:
    records: dict[str, bytes] = {}
    for number, server in enumerate(servers, 1):
        source = f"s{number}"
        made = config.SourceConfig(source_id=source)
        getattr(made, "from").CopyFrom(_endpoint(server))
        records[etcd_keys.source(source)] = etcd_keys.encode(state_pb.SourceRecord(config=made))
        records[etcd_keys.worker(f"w{number}")] = etcd_keys.encode(
            state_pb.WorkerRecord(name=f"w{number}", address="x:1")
        )
        if source in bound:
            binding = state_pb.BindingRecord(source_id=source, worker=f"w{number}")
            records[etcd_keys.bound(source)] = etcd_keys.encode(binding)
    return parse(
        RecordSnapshot(
            tuple(Record(key, value, mod_revision=1, create_revision=1, lease=0) for key, value in records.items()), 1
        )
    )


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Database]]]:
    folder = tmp_path_factory.mktemp("keys")
    made = {
        kind: [start(folder / f"{kind}-{number}", 30 + number) for number in range(2)] for kind, start in KINDS.items()
    }
    try:
        for servers in made.values():
            for server in servers:
                server.start()
        yield made
    finally:
        for servers in made.values():
            for server in servers:
                server.stop()


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, started: dict[str, list[Database]]) -> Pair:
    one, other = PAIRS[request.param]
    return Pair((started[one][0], started[other][1]), request.param)


def test_numbers_that_two_sources_have(pair: Pair) -> None:
    pair.tables("id bigint PRIMARY KEY, v int")
    pair.fill("SELECT seq, 0 FROM seq_1_to_3000", "SELECT seq + 2999, 0 FROM seq_1_to_3000")
    for proven in (False, True):  # 3000 is the last key of one table and the first of the other
        [result] = [one for one in pair.checked(proven=proven) if one.state == pb.CHECK_STATE_FAIL]
        assert (result.code, result.name, result.source) == (12023, "duplicate_keys", "s1")
        assert "merged.t: key (id)" in result.error_msg
        assert "3000 in s1 shard_1.t_1" in result.error_msg and "s2 shard_2.t_2" in result.error_msg
        assert "partition" in result.instruction
    assert pair.checked(proven=True, ignored="duplicate_keys") == []
    pair.servers[1].execute("DELETE FROM shard_2.t_2 WHERE id = 3000")
    for proven in (False, True):
        assert pair.codes(proven=proven) == [0]
    assert "their ranges are disjoint now" in pair.checked(proven=False)[0].desc


def test_one_duplicate_among_many_is_proven(pair: Pair) -> None:
    pair.tables("id bigint PRIMARY KEY, v int")
    pair.fill("SELECT seq * 2, 0 FROM seq_1_to_20000", "SELECT seq * 2 + 1, 0 FROM seq_1_to_20000")
    [proof] = [one for one in pair.checked(proven=True) if one.source == "s1"]
    assert "all 40000 keys were read, none exists twice" in proof.desc
    pair.servers[1].execute("INSERT INTO shard_2.t_2 VALUES (23456, 0)")
    [result] = [one for one in pair.checked(proven=True) if one.code]
    assert "23456 in s1 shard_1.t_1, s2 shard_2.t_2" in result.error_msg
    assert "more" not in result.error_msg


def test_a_mapping_keeps_sources_apart(pair: Pair) -> None:
    pair.tables("id bigint PRIMARY KEY, v int")
    pair.fill("VALUES (1, 0), (2, 0)", "VALUES (1, 0), (2, 0)")
    pair.instances = ("1", "2")
    for proven in (False, True):
        results = pair.checked(proven=proven)
        assert {result.code for result in results} == {0}
        assert "`partition id` keeps the shard tables apart" in results[0].desc
    pair.instances = ("1", "1")  # the same number at both
    for proven in (False, True):
        found = {result.code: result for result in pair.checked(proven=proven) if result.code}
        assert found.keys() == {12023, 12025}
        assert "s1 shard_1.t_1, s2 shard_2.t_2" in found[12025].error_msg
        assert f"{(1 << 59) + 1} in " in found[12023].error_msg


def test_texts_are_compared_as_the_target_does(pair: Pair) -> None:
    ci = "utf8mb4_unicode_520_ci"
    pair.tables(f"id varchar(50) CHARACTER SET utf8mb4 COLLATE {ci} PRIMARY KEY, v int")
    pair.fill("VALUES ('apple', 0), ('pear', 0)", "VALUES ('APPLE', 0), ('plum', 0)")
    [result] = [one for one in pair.checked(proven=False) if one.code]
    assert result.code == 12023 and "'apple'" in result.error_msg.lower()
    codes = pair.codes(proven=True)
    # The collation weights of two kinds of servers differ: no result counts as proven.
    assert codes == ([12024] if pair.kind == "mixed" else [12023])
    # A target that distinguishes the keys: the shard table finds the pair, and it is no duplicate.
    pair.tables(
        f"id varchar(50) CHARACTER SET utf8mb4 COLLATE {ci} PRIMARY KEY, v int",
        "CREATE TABLE merged.t (id varchar(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, v int)",
    )
    pair.fill("VALUES ('apple', 0), ('pear', 0)", "VALUES ('APPLE', 0), ('plum', 0)")
    assert pair.codes(proven=False) == [0]
    assert pair.codes(proven=True) == ([12024] if pair.kind == "mixed" else [0])


def test_a_target_that_ignores_trailing_spaces(pair: Pair) -> None:
    """Two texts of one source become one key at the target."""
    if pair.kind == "mixed":
        pytest.skip("not proven across kinds of servers")
    nopad = pair.target.spelt("utf8mb4_unicode_520_nopad_ci")
    pair.tables(
        f"id varchar(50) CHARACTER SET utf8mb4 COLLATE {nopad} PRIMARY KEY, v int",
        "CREATE TABLE merged.t (id varchar(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v int)",
    )
    pair.fill("VALUES ('a', 0), ('b', 0)", "VALUES ('a  ', 0), ('c', 0)")
    assert pair.codes(proven=True) == [12023]


def test_keys_of_several_columns_and_kinds(pair: Pair) -> None:
    pair.tables("a int, b varbinary(20), c datetime(3), d decimal(10,2), v int, PRIMARY KEY (a, b, c, d)")
    row = "(1, X'00ff', '2026-01-02 03:04:05.678', -1.50, 0)"
    pair.fill(f"VALUES {row}, (2, '', '2026-01-01', 0, 0)", f"VALUES {row}, (3, '', '2026-01-01', 0, 0)")
    for proven in (False, True):
        [result] = [one for one in pair.checked(proven=proven) if one.code]
        assert "1, X'00FF', 2026-01-02 03:04:05.678, -1.50 in " in result.error_msg


def test_a_further_unique_key_of_the_target(pair: Pair) -> None:
    """The shard tables do not keep the key unique: two rows of one table are reported too."""
    pair.tables("id bigint PRIMARY KEY, v int", "CREATE TABLE merged.t (id bigint PRIMARY KEY, v int, UNIQUE (v))")
    pair.fill("VALUES (1, 5), (2, NULL)", "VALUES (11, 6), (12, NULL), (13, 7), (14, 7)")
    [result] = [one for one in pair.checked(proven=True) if one.code]
    assert "key (v)" in result.error_msg and "7 in s2 shard_2.t_2, s2 shard_2.t_2" in result.error_msg
    pair.servers[1].execute("DELETE FROM shard_2.t_2 WHERE id = 14", "ALTER TABLE shard_2.t_2 ADD UNIQUE (v)")
    assert pair.codes(proven=True) == [0]  # one source could be read along an index, the other could not
    pair.servers[1].execute("INSERT INTO shard_2.t_2 VALUES (15, 5)")
    assert pair.codes(proven=True) == [12023]
    assert pair.codes(proven=False) == [12023]


def test_what_cannot_be_compared_is_reported(pair: Pair) -> None:
    pair.tables("id double PRIMARY KEY, v int")
    pair.fill("VALUES (1.5, 0)", "VALUES (1.5, 0)")
    for proven in (False, True):
        [result] = [one for one in pair.checked(proven=proven) if one.code]
        assert (result.code, result.state) == (12024, pb.CHECK_STATE_WARN)
        assert "is double" in result.error_msg
    pair.tables("id bigint PRIMARY KEY, v int")
    found = [one for one in pair.checked(proven=False, bound=("s1",)) if one.code]
    assert [(one.code, one.source) for one in found] == [(12050, "s2")]


def test_empty_tables_and_one_alone(pair: Pair) -> None:
    pair.tables("id bigint PRIMARY KEY, name varchar(10) NOT NULL UNIQUE, f double UNIQUE")
    assert pair.codes(proven=True) == [12024]  # the code of the DOUBLE column
    pair.servers[1].execute("DROP TABLE shard_2.t_2")
    for proven in (False, True):
        assert pair.codes(proven=proven) == [0]


def test_numbers_with_zeros_before_them(pair: Pair) -> None:
    pair.tables("id int(8) ZEROFILL PRIMARY KEY, v int")
    pair.fill("VALUES (7, 0), (9, 0)", "VALUES (8, 0), (10, 0)")
    pair.servers[1].execute("ALTER TABLE shard_2.t_2 MODIFY id bigint NOT NULL")
    assert [pair.codes(proven=proven) for proven in (False, True)] == [[0], [0]]
    pair.servers[1].execute("INSERT INTO shard_2.t_2 VALUES (7, 0)")
    assert [pair.codes(proven=proven) for proven in (False, True)] == [[12023], [12023]]
