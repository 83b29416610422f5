"""Which released tables get one stream, and which statements it skips."""

from __future__ import annotations

from shardmerge.proto import config_pb2
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.replicate.join.replay import replay_of, replayed_together
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import partitioning_for
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION


def released(number: int, at: int, skips: int = 0) -> tuple[Parked, RelayOffset]:
    item = Parked(
        number,
        "ALTER TABLE t CHANGE a b INT",
        "d",
        0,
        is_mariadb=True,
        session=UNKNOWN_SESSION,
        place=place(at - 1),
        resume_at=place(at).position,
        since=1.0,
        released=True,
        skips=place(skips) if skips else None,
    )
    return item, RelayOffset(1, at)


def place(pos: int) -> StatementPlace:
    return StatementPlace(SourcePosition("bin.000001", pos, "", "one"), 0)


def test_a_table_that_skips_statements_has_a_stream_alone() -> None:
    tables = {1: released(1, 10), 2: released(2, 20, skips=50), 3: released(3, 30), 4: released(4, 5, skips=60)}
    assert replayed_together(tables).keys() == {1, 3}
    assert replayed_together({2: tables[2], 4: tables[4]}).keys() == {4}, "the first one needs the oldest relay log"
    assert replayed_together({}) == {}


def test_the_stream_records_which_statements_it_skips() -> None:
    lanes = partitioning_for(config_pb2.SubTaskConfig(), 1, ())
    joining, offset = replay_of({4: released(4, 5, skips=60)}, lanes)
    assert (joining.skips, offset) == (place(60), RelayOffset(1, 5))
    assert Joining.from_json(joining.to_json()) == joining
    assert replay_of({1: released(1, 10)}, lanes)[0].skips is None
