"""A shard table that goes from one record to another while the records are read is in one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from proto import config_pb2
from tests.support.database import Database
from tests.support.pair import KINDS
from tests.support.plans import integer, table_plan
from worker import meta
from worker.connection import Endpoint, Session, Side, connect
from worker.ddl import parked, records
from worker.ddl.creation import Creation
from worker.ddl.everyone import everyone
from worker.ddl.parked import Parked
from worker.ddl.records import StatementPlace
from worker.ddl.seen import read_seen
from worker.ddl.session import PLAIN
from worker.join.record import Joining
from worker.meta import Phase
from worker.position import SourcePosition
from worker.replicate.dealing import Dealing, dealing_of
from worker.rules import Rules

WHO = ("dm_meta", "task", "mysql-01")
CONFIG = config_pb2.SubTaskConfig(task="task", source_id="mysql-01", meta_schema="dm_meta")
RULES = Rules.from_config(CONFIG)
HERE = SourcePosition("bin.000001", 4)
TABLES = tuple(table_plan((integer(),), (0,), shard=number, name=f"t{number}").table for number in range(2))
PLACE = StatementPlace(HERE, 0)
WAITS = Parked(1, "ALTER TABLE t1 ADD n INT", "shop_01", 0, False, PLAIN, PLACE, HERE, 1.0, released=True)
OWN = replace(dealing_of(CONFIG, 1, ()), shards=frozenset({0}))
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


def _record(server: Database, dealing: Dealing, joining: Joining | None, waits: Parked | None) -> None:
    """In one transaction, by somebody else."""
    session = _session(server)

    def also(inner: Session) -> None:
        parked.forget(inner, *WHO, [1])
        parked.write(inner, *WHO, {waits.number: waits} if waits is not None else {})

    columns = {"dealing": dealing.to_json(), "joining": joining.to_json() if joining is not None else ""}
    meta.pass_statement(session, *WHO, 1, columns, {}, also)
    session.close()


def _begin(server: Database) -> None:
    session = _session(server)
    server.execute("DROP DATABASE IF EXISTS dm_meta")
    meta.ensure_meta(session, WHO[0])
    meta.take_over(session, *WHO, 1, "")
    creations = {number: Creation("CREATE TABLE `t` (`id` bigint)", "utf8mb4_bin") for number in range(2)}
    meta.begin(
        session, *WHO, 1, Phase.REPLICATE, HERE, TABLES, lambda inner: records.write_creations(inner, *WHO, creations)
    )
    session.close()


def _seen_by_agent(session: Session) -> set[int]:
    return set(read_seen(session, WHO, RULES).plans)


def _seen_by_statement(session: Session) -> set[int]:
    return set(everyone(session, *WHO).mine)


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
    before: tuple[Dealing, Joining | None, Parked | None],
    after: tuple[Dealing, Joining | None, Parked | None],
) -> None:
    """Whichever of the reads it goes before."""
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
