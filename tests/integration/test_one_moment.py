"""Tests that a shard table which moves between records while they are read is found in one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.ddl.locks.lock_inputs import LockInputsReader
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.members.member_cache import MemberCache
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.records import ddl_progress, parked_tables, subtask_record
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Partitioning, partitioning_for
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from shardmerge.worker.target.records.subtask_record import Phase
from tests.support.database import Database
from tests.support.epochs import numbered
from tests.support.pair import KINDS
from tests.support.plans import integer, table_plan

WHO = SubtaskKey("dm_meta", "task", "mysql-01")
CONFIG = config_pb2.SubTaskConfig(task="task", source_id="mysql-01", meta_schema="dm_meta")
RULES = Rules.from_config(CONFIG)
HERE = SourcePosition("bin.000001", 4)
TABLES = tuple(table_plan((integer(),), (0,), shard=number, name=f"t{number}").table for number in range(2))
PLACE = StatementPlace(HERE, 0)
WAITS = Parked(1, "ALTER TABLE t1 ADD n INT", "shop_01", 0, False, UNKNOWN_SESSION, PLACE, HERE, 1.0, released=True)
OWN = replace(partitioning_for(CONFIG, 1, ()), shards=frozenset({0}))
COMES = Joining(replace(OWN, shards=frozenset({1})), HERE, replays=True)
WHOLE = replace(OWN, shards=frozenset({0, 1}))


@pytest.fixture(scope="module", params=KINDS.values(), ids=list(KINDS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made: Database = request.param(tmp_path_factory.mktemp("moment"), 33).start()
    yield made
    made.stop()


def _session(server: Database) -> Session:
    endpoint = Endpoint(server.host, server.port, server.user, server.password)
    return connect(endpoint, Side.TARGET, name="target")


def _record(server: Database, dealing: Partitioning, joining: Joining | None, waits: Parked | None) -> None:
    """Write the records in one transaction of another session."""
    session = _session(server)

    def also(inner: Session) -> None:
        parked_tables.delete(inner, WHO, [1])
        parked_tables.write(inner, WHO, {waits.number: waits} if waits is not None else {})

    columns = {"dealing": dealing.to_json(), "joining": joining.to_json() if joining is not None else ""}
    subtask_record.record_statement(session, WHO, 1, columns, {}, also)
    session.close()


def _begin(server: Database) -> None:
    session = _session(server)
    server.execute("DROP DATABASE IF EXISTS dm_meta")
    ensure_meta(session, WHO[0])
    subtask_record.take_over(session, WHO, numbered(1), "")
    creations = {number: CreateStatement("CREATE TABLE `t` (`id` bigint)", "utf8mb4_bin") for number in range(2)}
    subtask_record.begin(
        session,
        WHO,
        1,
        Phase.REPLICATE,
        HERE,
        TABLES,
        lambda inner: ddl_progress.write_creations(inner, WHO, creations),
    )
    session.close()


def _seen_by_agent(session: Session) -> set[int]:
    return set(LockInputsReader(WHO[2], RULES, MemberCache(*WHO[:2])).read(session).plans)


def _seen_by_statement(session: Session) -> set[int]:
    return set(read_target_members(session, WHO).own)


_BEFORE = {
    "waits, then joins": ((OWN, None, WAITS), (OWN, COMES, None)),
    "joins, then waits again": ((OWN, COMES, None), (OWN, None, WAITS)),
    "joins, then has joined": ((OWN, COMES, None), (WHOLE, None, None)),
    "is there, then waits": ((WHOLE, None, None), (OWN, None, WAITS)),
}


@pytest.mark.parametrize("reads", [_seen_by_agent, _seen_by_statement])
@pytest.mark.parametrize(("before", "after"), _BEFORE.values(), ids=list(_BEFORE))
def test_no_table_is_missed(
    server: Database,
    monkeypatch: pytest.MonkeyPatch,
    reads: Callable[[Session], set[int]],
    before: tuple[Partitioning, Joining | None, Parked | None],
    after: tuple[Partitioning, Joining | None, Parked | None],
) -> None:
    """The table moves before one of the reads; the test tries each of them."""
    session = _session(server)
    count = moment = 0
    made = session.cursor

    def cursor(*given: object) -> object:
        nonlocal count
        count += 1
        if count == moment:
            _record(server, *after)
        return made(*given)  # pyright: ignore

    monkeypatch.setattr(session, "cursor", cursor)
    while count >= moment:
        _begin(server)
        _record(server, *before)
        count, moment = 0, moment + 1
        assert reads(session) == {0, 1}, f"it went before the {moment}. statement"
    assert moment > 3
    session.close()
