"""Tests that the cached members of a task equal those of the records, after all changes by all writers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.members.member_cache import MemberCache
from shardmerge.worker.target.records import ddl_progress, parked_tables, subtask_record
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import partitioning_for
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from shardmerge.worker.target.records.subtask_record import Phase
from tests.support.database import Database
from tests.support.epochs import numbered
from tests.support.pair import KINDS
from tests.support.plans import integer, table_plan, text

META, TASK = "dm_meta", "task"
SOURCES: tuple[str, ...] = ("mysql-01", "mysql-02")
COUNT = 100
CONFIG = config_pb2.SubTaskConfig(task=TASK, source_id=SOURCES[0], meta_schema=META)
RULES = Rules.from_config(CONFIG)
HERE = SourcePosition("bin.000001", 4)
PLACE = StatementPlace(HERE, 0)
TABLES = tuple(table_plan((integer(),), (0,), shard=number, name=f"t{number}").table for number in range(COUNT))
ALL = replace(partitioning_for(CONFIG, 1, ()), shards=frozenset(range(COUNT)))


@pytest.fixture(scope="module", params=KINDS.values(), ids=list(KINDS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made: Database = request.param(tmp_path_factory.mktemp("members"), 33).start()
    yield made
    made.stop()


@pytest.fixture
def session(server: Database) -> Iterator[Session]:
    server.execute("DROP DATABASE IF EXISTS dm_meta")
    endpoint = Endpoint(server.host, server.port, server.user, server.password)
    made = connect(endpoint, Side.TARGET, name="target")
    ensure_meta(made, META)
    for source in SOURCES:
        _take_over(made, source, 1)
        subtask_record.begin(made, SubtaskKey(META, TASK, source), 1, Phase.REPLICATE, HERE, TABLES, _creations(source))
        _record(made, source, 1, {"dealing": ALL.to_json()}, {}, lambda _: None)
    yield made
    made.close()


def _take_over(session: Session, source: str, epoch: int) -> None:
    subtask_record.take_over(session, SubtaskKey(META, TASK, source), numbered(epoch), "")


def _creations(source: str) -> Callable[[Session], None]:
    made = {number: CreateStatement("CREATE TABLE `t` (`id` bigint)", "utf8mb4_bin") for number in range(COUNT)}
    return lambda session: ddl_progress.write_creations(session, SubtaskKey(META, TASK, source), made)


def _record(
    session: Session,
    source: str,
    epoch: int,
    columns: dict[str, str],
    altered: dict[int, str],
    also: Callable[[Session], None],
) -> None:
    """Write the records. ``altered``: these tables have a further column."""
    tables = {number: replace(TABLES[number], columns=(integer(), text(name))) for number, name in altered.items()}
    subtask_record.record_statement(session, SubtaskKey(META, TASK, source), epoch, columns, tables, also)


def _fresh(session: Session) -> object:
    return MemberCache(META, TASK).read(session)


class _Random:
    """Random changes of the records, as streams, lock agents and operators make them."""

    def __init__(self, seed: int, session: Session) -> None:
        self.rng = random.Random(seed)
        self.session = session
        self.epochs: dict[str, int] = dict.fromkeys(SOURCES, 1)

    def step(self) -> None:
        source = self.rng.choice(SOURCES)
        kind = self.rng.choice((self.alter, self.alter, self.park, self.unpark, self.join, self.facts, self.take_over))
        kind(source)

    def numbers(self, most: int = 3) -> list[int]:
        return self.rng.sample(range(COUNT), self.rng.randint(1, most))

    def record(
        self, source: str, columns: dict[str, str], altered: dict[int, str], also: Callable[[Session], None]
    ) -> None:
        _record(self.session, source, self.epochs[source], columns, altered, also)

    def alter(self, source: str) -> None:
        numbers = self.numbers(self.rng.choice((1, 3, COUNT)))
        name = f"c{self.rng.randrange(1000)}"
        made = {number: CreateStatement(f"CREATE TABLE `t` (`{name}` int)", "utf8mb4_bin") for number in numbers}
        self.record(
            source, {}, dict.fromkeys(numbers, name),
            lambda session: ddl_progress.write_creations(session, SubtaskKey(META, TASK, source), made),
        )  # fmt: skip

    def park(self, source: str) -> None:
        numbers = self.numbers()
        parked = {
            number: Parked(number, "ALTER TABLE t ADD n INT", "d", 0, False, UNKNOWN_SESSION, PLACE, HERE, 1.0)
            for number in numbers
        }
        dealing = replace(ALL, shards=ALL.shards.difference(numbers))
        self.record(
            source, {"dealing": dealing.to_json()}, {},
            lambda session: parked_tables.write(session, SubtaskKey(META, TASK, source), parked),
        )  # fmt: skip

    def unpark(self, source: str) -> None:
        numbers = self.numbers(COUNT)
        self.record(
            source, {"dealing": ALL.to_json()}, {},
            lambda session: parked_tables.delete(session, SubtaskKey(META, TASK, source), numbers),
        )  # fmt: skip

    def join(self, source: str) -> None:
        numbers = frozenset(self.numbers())
        joining = Joining(replace(ALL, shards=numbers), HERE, replays=True)
        self.record(source, {"joining": self.rng.choice(("", joining.to_json()))}, {}, lambda _: None)

    def facts(self, source: str) -> None:
        dealing = replace(ALL, one_lane=frozenset(self.rng.sample(["`shop_01`.`t1`", "`shop_01`.`t2`"], 1)))
        dealing = replace(dealing, may_lack_rows=frozenset(self.numbers()))
        self.record(source, {"dealing": dealing.to_json()}, {}, lambda _: None)

    def take_over(self, source: str) -> None:
        self.epochs[source] += 1
        _take_over(self.session, source, self.epochs[source])


@pytest.mark.parametrize("seed", range(4))
def test_a_cached_answer_equals_the_records(session: Session, seed: int) -> None:
    cache, changes = MemberCache(META, TASK), _Random(seed, session)
    for _ in range(60):
        changes.step()
        if changes.rng.random() < 0.7:
            assert cache.read(session) == _fresh(session)


def test_records_of_an_earlier_version_are_read_each_time(session: Session) -> None:
    """Such a process takes over without a version, and changes records without one."""
    cache = MemberCache(META, TASK)
    cache.read(session)
    with session.cursor() as cursor:
        cursor.execute("UPDATE dm_meta.subtask SET epoch = 2")
        for number in (1, 2):
            cursor.execute(
                "UPDATE dm_meta.table_creation SET creation = %s WHERE source = 'mysql-01' AND number = 3",
                (f"CREATE TABLE `t` (`n{number}` int)",),
            )
            found = cache.read(session)
            assert f"n{number}" in found.sources["mysql-01"].creations[3].text
            assert found == _fresh(session)
        # The current version takes over again.
        _take_over(session, "mysql-01", 3)
        assert cache.read(session) == _fresh(session)


def test_what_has_not_changed_is_not_read_again(session: Session) -> None:
    cache = MemberCache(META, TASK)
    before = cache.read(session).sources
    _record(session, "mysql-02", 1, {}, {7: "added"}, lambda _: None)
    after = cache.read(session).sources
    for source in SOURCES:
        for number in range(COUNT):
            same = after[source].plans[number] is before[source].plans[number]
            assert same == ((source, number) != ("mysql-02", 7))


def test_records_begun_anew_are_read_anew(session: Session) -> None:
    cache = MemberCache(META, TASK)
    cache.read(session)
    assert subtask_record.take_over(session, SubtaskKey(META, TASK, "mysql-01"), numbered(2), "start over").starts_over
    cache.read(session)
    subtask_record.start_over(session, SubtaskKey(META, TASK, "mysql-01"), 2, 3)
    found = cache.read(session)
    assert not found.sources["mysql-01"].plans
    assert found == _fresh(session)
