"""Where a dump begins: at the server read before by its files, at any other by GTID, else not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.fetch.dump_start import (
    Continues,
    FirstStart,
    FromFile,
    FromGtids,
    Plan,
    ServerChanged,
    SourceState,
    plan_start,
)
from shardmerge.worker.relay.log.generation import NOWHERE, Generation, RelayLogPart
from shardmerge.worker.relay.model import Head

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
END = SourcePosition("mysql-bin.000009", 900, "", "b")
PLACE = SourcePosition("mysql-bin.000003", 500, "", "a")
MARIADB = SourceState("b", "h", 3306, gtids=True, executed="0-1-100,0-2-120", purged="0-1-40", end=END)
MYSQL = SourceState("b", "h", 3306, gtids=True, executed=f"{A}:1-120", purged=f"{A}:1-40", end=END)


def plan(
    position: SourcePosition,
    state: SourceState,
    *,
    empty: bool = False,
    settling: str | None = None,
    there: str | None = None,
) -> Plan:
    generation = Generation("id", 1, position, 1 << 20, (RelayLogPart(position.server, 1, NOWHERE),), settling)
    return plan_start("s", generation, Head(RelayOffset(1, 4), position, 0.0), empty, state, "dir", there)


def refused(position: SourcePosition, state: SourceState, *, empty: bool = False) -> tuple[ErrorSpec, str]:
    with pytest.raises(ShardmergeError) as caught:
        plan(position, state, empty=empty)
    return caught.value.spec, caught.value.message


@pytest.mark.parametrize("state", [MARIADB, MYSQL])
def test_the_same_server_is_read_on_by_its_files(state: SourceState) -> None:
    same = replace(state, server="a")
    known = replace(PLACE, gtid_set="whatever")
    assert plan(known, same) == Continues(FromFile(known, seed=False))
    assert plan(PLACE, same) == Continues(FromFile(PLACE, seed=True))  # its GTIDs are still to be found out
    assert plan(PLACE, replace(same, gtids=False)) == Continues(FromFile(PLACE, seed=False))
    unnamed = replace(PLACE, server="")  # a log of a version that did not record it
    assert plan(unnamed, same) == Continues(FromFile(unnamed, seed=True))


def test_until_a_file_begins_after_all_known_gtids_it_continues_by_gtid() -> None:
    known = replace(PLACE, gtid_set="0-1-90", server="b")
    assert plan(known, MARIADB, settling="0-1-80") == Continues(FromGtids("0-1-90"))


@pytest.mark.parametrize(("state", "known"), [(MARIADB, "0-1-90"), (MYSQL, f"{A}:1-90")])
def test_another_server_continues_by_gtid(state: SourceState, known: str) -> None:
    assert plan(replace(PLACE, gtid_set=known), state) == ServerChanged(FromGtids(known), END)
    unseen = replace(state, end=None)
    assert plan(replace(PLACE, gtid_set=known), unseen) == ServerChanged(FromGtids(known), NOWHERE)


def test_another_server_without_gtids_is_an_error_with_the_way_out() -> None:
    for position, state in ((PLACE, MYSQL), (replace(PLACE, gtid_set=f"{A}:1-90"), replace(MYSQL, gtids=False))):
        spec, message = refused(position, state)
        assert spec is errors.relay.SOURCE_CHANGED
        assert "is now b" in message and "from a" in message
    assert refused(PLACE, MYSQL, empty=True)[0] is errors.relay.SOURCE_CHANGED


@pytest.mark.parametrize(
    ("state", "known", "spec", "named"),
    [
        (MARIADB, "0-1-30", errors.relay.SOURCE_GTIDS_GONE, "0-*-31"),
        (MYSQL, f"{A}:1-30", errors.relay.SOURCE_GTIDS_GONE, f"{A}:31"),
        (MYSQL, f"{A}:1-20:22-90", errors.relay.SOURCE_GTIDS_GONE, f"{A}:21"),
        (MARIADB, "0-1-101", errors.relay.SOURCE_LACKS_GTIDS, "0-1-101"),
        (MYSQL, f"{A}:1-121", errors.relay.SOURCE_LACKS_GTIDS, f"{A}:121"),
        (MYSQL, f"{A}:1-90,{B}:1", errors.relay.SOURCE_LACKS_GTIDS, f"{B}:1"),
        (MYSQL, f"{A}:1-90:blue:1", errors.relay.SOURCE_LACKS_GTIDS, f"{A}:blue:1"),
    ],
)
@pytest.mark.parametrize("empty", [False, True])
def test_what_the_other_server_cannot_send_is_named(
    state: SourceState, known: str, spec: ErrorSpec, named: str, empty: bool
) -> None:
    found, message = refused(replace(PLACE, gtid_set=known), state, empty=empty)
    assert found is spec
    assert f"GTID {named}" in message or f"GTID is {named}:" in message
    assert spec.retryable == (spec is errors.relay.SOURCE_LACKS_GTIDS)  # a replica may be catching up


def test_an_empty_log_begins_where_it_is_to() -> None:
    same = replace(PLACE, server="b")
    assert plan(same, MARIADB, empty=True) == FirstStart(FromFile(same, seed=True), same, None)
    known = replace(same, gtid_set="0-1-90")
    # MariaDB's set belongs to the place exactly; MySQL's was read a moment before: by it nothing can be missed.
    assert plan(known, MARIADB, empty=True) == FirstStart(FromFile(known, seed=False), known, None)
    assert plan(known, MARIADB, empty=True, there="0-1-90") == FirstStart(FromFile(known, seed=False), known, None)
    # Recorded before the server's first event: the place is the beginning of a file.
    assert plan(known, MARIADB, empty=True, there="") == FirstStart(FromGtids("0-1-90"), known, "0-1-90")
    assert plan(known, MARIADB, empty=True, there="0-1-89") == FirstStart(FromGtids("0-1-90"), known, "0-1-90")
    # The binlog began anew: the dump from the file reports that.
    anew = replace(MARIADB, executed="0-1-2")
    assert plan(known, anew, empty=True, there="") == FirstStart(FromFile(known, seed=False), known, None)
    known = replace(same, gtid_set=f"{A}:1-90")
    assert plan(known, MYSQL, empty=True) == FirstStart(FromGtids(f"{A}:1-90"), known, f"{A}:1-90")
    # A position of another server is useless; the set identifies it.
    elsewhere = replace(PLACE, gtid_set="0-1-90")
    assert plan(elsewhere, MARIADB, empty=True) == FirstStart(FromGtids("0-1-90"), END, "0-1-90")
    alone = SourcePosition("", 0, f"{A}:1-90")
    assert plan(alone, MYSQL, empty=True) == FirstStart(FromGtids(f"{A}:1-90"), END, f"{A}:1-90")
