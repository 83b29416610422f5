"""Held changes and their net change: no change of a key is lost, doubled or reordered; other keys are not held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.batch import Batch, Keys, KeyState
from shardmerge.worker.core.mysql.server_errors import ErrorKind, kind_of
from shardmerge.worker.core.row_change import ChangeKind, JoinedLiterals, RowChange
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.apply.affected_rows import is_row_error
from shardmerge.worker.target.apply.dml import DeleteKeys, InsertRows
from shardmerge.worker.target.apply.row_bisect import Group, statements_of
from shardmerge.worker.target.quarantine.held_changes import (
    HeldChange,
    HeldKey,
    combine_disjoint_groups,
    group_by_target,
    held_change,
    held_key,
    minimal_plan,
    net_change,
    split_held,
    touches_held,
)
from tests.support.plans import integer, table_plan, text

COLUMNS = (integer(), text("v"))
SHARD_A = table_plan(COLUMNS, (0,), shard=0)
SHARD_B = table_plan(COLUMNS, (0,), shard=1, name="order_02")
BAD = "bad"

Rows = dict[JoinedLiterals, JoinedLiterals]


class Refused(Exception):
    """The model target takes no such row."""


def image(key: int, value: str) -> JoinedLiterals:
    return f"{key},'{value}'".encode()


def is_bad(row: JoinedLiterals) -> bool:
    return BAD.encode() in row


def try_to_apply(target: Rows, groups: Iterable[Group], *, mended: bool) -> tuple[Rows, set[HeldKey]]:
    """What the statements make of ``target``, and the keys whose rows it refuses."""
    made, refused = dict(target), set[HeldKey]()
    for statement, keys in statements_of(groups, 1 << 20, overwrite=False):
        match statement:
            case DeleteKeys(keys=gone):
                for key in gone:
                    if made.pop(key, None) is None:
                        refused.add(held_key(key, keys[key]))
            case InsertRows(keys=coming):
                for key in coming:
                    row = keys[key].image
                    assert row is not None
                    if key in made or (is_bad(row) and not mended):
                        refused.add(held_key(key, keys[key]))
                    else:
                        made[key] = row
            case _:
                raise AssertionError(statement)
    return made, refused


class Model:
    """One lane with a target that refuses bad rows until it is mended."""

    def __init__(self) -> None:
        self.target: Rows = {}
        self.chains: dict[HeldKey, list[HeldChange]] = {}

    def commit(self, groups: Sequence[Group]) -> None:
        refused: set[HeldKey] = set()
        while True:
            rest, waiting = split_held(groups, self.chains.keys() | refused)
            made, more = try_to_apply(self.target, rest, mended=False)
            if not more:
                break
            refused |= more
        self.target = made
        for change in waiting:
            if change.operation != "nothing":
                self.chains.setdefault(change.at, []).append(change)

    def retry(self) -> None:
        """Once the target is mended."""
        nets = [net_change(chain) for chain in self.chains.values()]
        self.target, refused = try_to_apply(self.target, group_by_target(nets), mended=True)
        assert not refused
        self.chains = {}


actions = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["put", "move", "remove", "commit"]), st.integers(0, 5)), max_size=40
)


@given(actions, st.lists(st.booleans(), min_size=40, max_size=40))
def test_after_the_retry_the_target_is_what_the_source_is(todo: list[tuple[int, str, int]], bad: list[bool]) -> None:
    """Whatever is refused: the keys that are not held are right at every commit, all keys after the retry."""
    source: Rows = {}
    model, batch = Model(), Batch(0, 1, "bin.000001", by_shard=True)
    for step, (number, action, other) in enumerate(todo):
        key, elsewhere = str(number).encode(), str(other).encode()
        row = image(number, f"{BAD if bad[step] else 'ok'}{step}")
        if action == "commit":
            model.commit(combine_disjoint_groups(batch.targets()))
            batch = Batch(0, 1, "bin.000001", by_shard=True)
            held = {at.key for at in model.chains}
            assert {k: v for k, v in model.target.items() if k not in held} == {
                k: v for k, v in source.items() if k not in held
            }
        elif action == "put":
            (batch.replace if key in source else batch.put)(SHARD_A, key, row, step)
            source[key] = row
        elif action == "remove" and key in source:
            batch.remove(SHARD_A, key, step)
            del source[key]
        elif action == "move" and key in source and elsewhere not in source:
            row = image(other, f"{BAD if bad[step] else 'ok'}{step}")
            batch.add(
                RowChange(0, 0, ChangeKind.UPDATE, SHARD_A, tuple(source[key].split(b",")), tuple(row.split(b","))),
                step,
            )
            del source[key]
            source[elsewhere] = row
    model.commit(combine_disjoint_groups(batch.targets()))
    assert not any(map(is_bad, model.target.values()))
    model.retry()
    assert model.target == source


def test_a_held_key_is_that_of_one_shard_table() -> None:
    """The other shard table's row, which the target has, is not held."""
    batch = Batch(0, 1, "bin.000001", by_shard=True)
    batch.replace(SHARD_A, b"1", image(1, "mine"), 100)
    batch.replace(SHARD_B, b"1", image(1, "held"), 200)
    groups = combine_disjoint_groups(batch.targets())
    held = {HeldKey(SHARD_B.target, 1, b"1")}
    assert touches_held(groups, held)
    rest, [waiting] = split_held(groups, held)
    assert [(key, state.plan.shard) for _, keys in rest for key, state in keys.items()] == [(b"1", 0)]
    assert (waiting.at.shard, waiting.image, waiting.position.pos) == (1, image(1, "held"), 200)
    assert not touches_held(rest, held)


def test_a_row_that_moves_between_shards_is_deleted_before_it_comes() -> None:
    """In any order of the shard tables."""
    for leaves, comes in ((SHARD_A, SHARD_B), (SHARD_B, SHARD_A)):
        batch = Batch(0, 1, "bin.000001", by_shard=True)
        batch.remove(leaves, b"1", 100)
        batch.put(comes, b"1", image(1, "new"), 200)
        made, refused = try_to_apply({b"1": image(1, "old")}, combine_disjoint_groups(batch.targets()), mended=False)
        assert (made, refused) == ({b"1": image(1, "new")}, set())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), unique=True, max_size=8))
def test_groups_are_one_where_no_key_is_in_two(places: list[tuple[int, int]]) -> None:
    batch = Batch(0, 1, "bin.000001", by_shard=True)
    for number, shard in places:
        batch.put((SHARD_A, SHARD_B)[shard], str(number).encode(), image(number, f"{shard}"), 1)
    groups = combine_disjoint_groups(batch.targets())
    assert len(groups) <= (1 if len({number for number, _ in places}) == len(places) else 2)
    found = sorted((int(key), state.plan.shard) for _, keys in groups for key, state in keys.items())
    assert found == sorted(places)


def test_a_change_is_the_same_without_its_plan() -> None:
    """Its statements, and how it is shown."""
    plan = table_plan((text("a"), integer("b"), text("v")), (1, 0), shard=4)
    state = KeyState(True, plan, b"'x',7,NULL", "bin.000001", 900)
    change = held_change(b"7,'x'", state)
    keys: Keys = {b"7,'x'": state}
    [(_, again)] = group_by_target([change])
    assert [statement.sql for statement, _ in statements_of([("t", again)], 1 << 20, overwrite=False)] == [
        statement.sql for statement, _ in statements_of([("t", keys)], 1 << 20, overwrite=False)
    ]
    assert change.key_text == "((`b`, `a`) = (7,'x'))"
    assert minimal_plan(change).target == plan.target


def _change(existed: bool, row: JoinedLiterals | None) -> HeldChange:
    return held_change(b"1", KeyState(existed, SHARD_A, row, "bin.000001", 5))


@pytest.mark.parametrize(
    "chain",
    [
        (_change(False, image(1, "a")), _change(False, image(1, "b"))),
        (_change(True, None), _change(True, image(1, "b"))),
        (_change(True, image(1, "a")), replace(_change(True, None), at=HeldKey(SHARD_A.target, 0, b"2"))),
    ],
    ids=["came twice", "changed after it went", "another key"],
)
def test_changes_that_do_not_follow_one_another_are_not_applied(chain: tuple[HeldChange, ...]) -> None:
    with pytest.raises(ShardmergeError) as caught:
        net_change(chain)
    assert caught.value.spec is errors.replicate.QUARANTINE_BROKEN


def test_digests_tell_keys_apart() -> None:
    target = SHARD_A.target
    keys = [
        HeldKey(target, 0, b"1"),
        HeldKey(target, 0, b"11"),
        HeldKey(target, 1, b"1"),
        HeldKey(TargetTable(target.schema, "orders1"), 0, b"1"),
        HeldKey(TargetTable("sho", "porders"), 0, b"1"),
    ]
    assert len({key.digest for key in keys}) == len(keys)


@pytest.mark.parametrize("errno", [1048, 1062, 1264, 1366, 1406, 3819, 4025, 8025])
def test_refusals_of_a_row(errno: int) -> None:
    assert is_row_error(errno)


def test_what_can_be_tried_again_is_no_matter_of_a_row() -> None:
    for errno in range(10_000):
        assert not is_row_error(errno) or kind_of(errno) is ErrorKind.STATEMENT, errno
    for errno in (1054, 1146, 1142, 1205, 1213, 1114, 2013, 1153, 1290, 1452):
        assert not is_row_error(errno), errno
