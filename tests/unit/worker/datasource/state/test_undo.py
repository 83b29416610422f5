"""The first row image of each changed key, compared with a simple model of a table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan
from shardmerge.worker.datasource.state.undo import Before, note_first

_COLUMNS = tuple(Column(name, ValueKind.INTEGER, "int(11)", False) for name in ("id", "v"))
_TABLE = Table("d", "t", _COLUMNS, (0,), "PRIMARY", (("id",),), False, "InnoDB")
PLAN = TablePlan(
    0, "s", _TABLE, "d", "t", tuple(ColumnPlan(at, column, column.name) for at, column in enumerate(_COLUMNS)), (0,)
)
KEYS = st.integers(0, 4)


def row(key: int, value: int) -> Literals:
    return (b"%d" % key, b"%d" % value)


@given(st.dictionaries(KEYS, st.integers(0, 9)), st.lists(st.tuples(KEYS, KEYS, st.booleans())), st.integers(0, 20))
def test_any_later_state_is_undone(state: dict[int, int], steps: list[tuple[int, int, bool]], seen_after: int) -> None:
    now, seen = dict(state), dict(state)
    first: Before = {}
    for number, (key, other, deletes) in enumerate(steps):
        if number <= seen_after:
            seen = dict(now)
        value = 100 + number
        if key not in now:
            change = RowChange(0, 0, ChangeKind.INSERT, PLAN, (), row(key, value))
            now[key] = value
        elif deletes or (other != key and other in now):
            change = RowChange(0, 0, ChangeKind.DELETE, PLAN, row(key, now.pop(key)), ())
        else:
            change = RowChange(0, 0, ChangeKind.UPDATE, PLAN, row(key, now.pop(key)), row(other, value))
            now[other] = value
        note_first(first, PLAN, change)
    undone = {b"%d" % key: row(key, value) for key, value in seen.items() if (b"%d" % key,) not in first}
    undone |= {key[0]: image for key, image in first.items() if image}
    assert undone == {b"%d" % key: row(key, value) for key, value in state.items()}
