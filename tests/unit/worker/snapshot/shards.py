"""A small shard table, its plan, and changes of it as the decoder would make them."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, PartitionId, TablePlan

PREFIX = 5 << 44

ID = Column("id", ValueKind.INTEGER, "bigint(20)", nullable=False)
VALUE = Column("v", ValueKind.INTEGER, "int(11)", nullable=True)
TABLE = Table("db", "t", (ID, VALUE), (0,), "PRIMARY", (("id",),), False, "InnoDB")
PLAN = TablePlan(
    0, "s1", TABLE, "merged", "t", (ColumnPlan(0, ID, "id", PartitionId(PREFIX, 44)), ColumnPlan(1, VALUE, "v")), (0,)
)

State = dict[int, int]


@dataclass(frozen=True, slots=True)
class Step:
    """One change of the source: ``before``/``after`` are (id, v), None on the side that is not there."""

    before: tuple[int, int] | None
    after: tuple[int, int] | None


def literal_of(key: int) -> Literals:
    return (b"%d" % key,)


def row_of(key: int, value: int) -> Literals:
    """The mapped literals of a row."""
    return (b"%d" % (PREFIX | key), b"%d" % value)


def change_of(step: Step, at: int) -> RowChange:
    """``at``: the value of ``RowChange.byte``."""
    match step:
        case Step(None, after) if after is not None:
            return RowChange(at, 0, ChangeKind.INSERT, PLAN, (), row_of(*after), (), literal_of(after[0]))
        case Step(before, None) if before is not None:
            return RowChange(at, 0, ChangeKind.DELETE, PLAN, row_of(*before), (), literal_of(before[0]), ())
        case Step(before, after) if before is not None and after is not None:
            return RowChange(
                at,
                0,
                ChangeKind.UPDATE,
                PLAN,
                row_of(*before),
                row_of(*after),
                literal_of(before[0]),
                literal_of(after[0]),
            )
        case _:
            raise AssertionError(step)


def history(choices: list[tuple[int, int, int]]) -> tuple[list[Step], list[State]]:
    """Steps made of ``choices`` (what, key, other key), and the state before each and after the last."""
    state: State = {}
    states = [dict(state)]
    steps: list[Step] = []
    for number, (what, key, other) in enumerate(choices):
        value = number + 1000
        if key not in state:
            steps.append(Step(None, (key, value)))
            state[key] = value
        elif what == 0:
            steps.append(Step((key, state.pop(key)), None))
        elif what == 1 or other in state:
            steps.append(Step((key, state[key]), (key, value)))
            state[key] = value
        else:
            steps.append(Step((key, state.pop(key)), (other, value)))
            state[other] = value
        states.append(dict(state))
    return steps, states


def rows_of(state: State) -> dict[Literals, Literals]:
    """Key → row, as a chunk holds them."""
    return {row_of(key, value)[:1]: row_of(key, value) for key, value in state.items()}
