"""query-status shows the sharding DDLs that tables of a source wait at."""

from __future__ import annotations

from shardmerge.master.ddl_lock.records import Target, to_record
from shardmerge.master.ddl_lock.report import conflicts_in
from shardmerge.master.ddl_lock.situation import Lock
from shardmerge.master.ddl_lock.source_waits import add_waits, waits_of
from shardmerge.master.state import State
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2, worker_pb2
from tests.unit.master.records import state

ORDERS, LINES = Target("t", "shop", "orders"), Target("t", "shop", "lines")
LOCK = Lock("g", "s1", "ALTER A", "fa", "S0", "S1", 1000.0)


def _table(name: str, structure: str, statement: str = "", since: float = 0.0) -> state_pb2.ShardTable:
    table = state_pb2.ShardTable(schema="d", table=name, structure=structure)
    if statement:
        form = f"f{statement[-1].lower()}"
        table.parked.CopyFrom(
            state_pb2.ParkedAt(statement=statement, form=form, after="S1", position=f"at {name}", since=since)
        )
    return table


def _state(*targets: state_pb2.ShardTarget, locks: tuple[state_pb2.LockRecord, ...] = ()) -> State:
    subtask = config.SubTaskConfig(task="t", source_id="s1", shard_mode=config.SHARD_MODE_PESSIMISTIC)
    return state(subtasks=(subtask,), shards={("t", "s1"): state_pb2.ShardRecord(targets=targets)}, locks=locks)


def _target(target: Target, *tables: state_pb2.ShardTable) -> state_pb2.ShardTarget:
    return state_pb2.ShardTarget(schema=target.schema, table=target.table, tables=tables)


def _status(read: State) -> worker_pb2.SubTaskStatus:
    status = worker_pb2.SubTaskStatus(name="t", sync=worker_pb2.SyncStatus(synced=False))
    add_waits(status, waits_of("t", "s1", read), conflicts_in(read))
    return status


def test_tables_that_wait_are_named_with_their_lock() -> None:
    orders = _target(
        ORDERS,
        _table("a", "S0", "ALTER A", 900.0),
        _table("b", "S1"),
        _table("c", "S0"),
        _table("e", "S0", "ALTER B", 950.0),
    )
    status = _status(_state(orders, locks=(to_record(ORDERS, LOCK),)))
    assert status.unresolved_ddl_lock_id == ORDERS.lock_id
    assert status.sync.block_ddl_owner == "s1"
    assert list(status.sync.blocking_ddls) == ["ALTER A", "ALTER B"]
    [group] = status.sync.unresolved_groups
    assert (group.target, group.first_location) == ("`shop`.`orders`", "at a")
    assert list(group.ddls) == ["ALTER A", "ALTER B"]
    # b has the structure after the statement already; e waits at another one.
    assert list(group.synced) == ["`d`.`a`", "`d`.`b`"]
    assert list(group.unsynced) == ["`d`.`e`", "`d`.`c`"]


def test_a_conflict_is_named_with_its_tables_its_lock_and_the_way_out() -> None:
    orders = _target(ORDERS, _table("a", "S0", "ALTER A", 900.0), _table("e", "S0", "ALTER B", 950.0))
    lines = _target(LINES, _table("x", "S0", "ALTER A", 990.0), _table("y", "S0"))
    read = _state(orders, lines, locks=(to_record(ORDERS, LOCK), to_record(LINES, LOCK)))
    [conflict] = conflicts_in(read).values()
    assert (conflict.target, conflict.first.table, conflict.since) == (ORDERS, "e", 1000.0)
    status = _status(read)
    with_conflict, without = status.sync.unresolved_groups
    assert (with_conflict.conflict.code, without.HasField("conflict")) == (50101, False)
    for part in ("task t:", "s1 `d`.`e`", "ALTER A", "ALTER B", "at e of source s1", ORDERS.lock_id):
        assert part in with_conflict.conflict.message
    for way_out in (f"`dmctl shard-ddl-lock unlock '{ORDERS.lock_id}'`", "`dmctl stop-task t -s s1`"):
        assert way_out in with_conflict.conflict.workaround


def test_the_oldest_wait_comes_first_and_a_lock_may_not_be_open_yet() -> None:
    orders = _target(ORDERS, _table("a", "S0", "ALTER A", 900.0), _table("b", "S0"))
    lines = _target(LINES, _table("x", "S0", "ALTER X", 800.0))
    status = _status(_state(orders, lines, locks=(to_record(ORDERS, LOCK),)))
    assert status.unresolved_ddl_lock_id == LINES.lock_id
    assert status.sync.block_ddl_owner == ""
    assert [group.target for group in status.sync.unresolved_groups] == ["`shop`.`lines`", "`shop`.`orders`"]
    assert list(status.sync.unresolved_groups[1].unsynced) == ["`d`.`b`"]


def test_nothing_is_shown_while_nothing_waits() -> None:
    before = worker_pb2.SubTaskStatus(name="t", sync=worker_pb2.SyncStatus(synced=False))
    assert _status(_state(_target(ORDERS, _table("a", "S0")))) == before
    assert _status(state()) == before
    load = worker_pb2.SubTaskStatus(name="t", load=worker_pb2.LoadStatus())
    add_waits(load, waits_of("t", "s1", _state(_target(ORDERS, _table("a", "S0", "ALTER A", 1.0)))), {})
    assert load == worker_pb2.SubTaskStatus(name="t", load=worker_pb2.LoadStatus())
