"""Of which shard tables a rehearsal is asked, and the statement as each gets it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.dry_run.model import changes_structure, statement_for, tables_in_scope

PLAN = TablePlan(3, "s1", Table("d_1", "t`1", (), (), "", (), False, "InnoDB"), "d", "t", (), ())


def _refused(spec: ErrorSpec, work: Callable[[], object]) -> ShardmergeError:
    with pytest.raises(ShardmergeError) as caught:
        work()
    assert caught.value.spec is spec
    return caught.value


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("ALTER TABLE d_1.t ADD c INT", [], [("d_1", "t")]),
        ("CREATE INDEX i ON `d_1`.`t` (c)", [], [("d_1", "t")]),
        ("DROP INDEX i ON d_1.t;", [], [("d_1", "t")]),
        ("ALTER TABLE t ADD c INT", ["d_1.t_1", "`d.2`.`t_1`", "d_1.t_1"], [("d_1", "t_1"), ("d.2", "t_1")]),
        ("ALTER TABLE x.y ADD c INT", ["d_1.t_1"], [("d_1", "t_1")]),
    ],
)
def test_the_tables_asked_about(text: str, given: list[str], expected: list[tuple[str, str]]) -> None:
    assert list(tables_in_scope(text, given)) == expected


@pytest.mark.parametrize("text", ["DROP TABLE d.t", "SELECT 1", "", "ALTER TABLE", "CREATE TABLE d.t (id INT)"])
def test_other_statements_are_refused(text: str) -> None:
    error = _refused(errors.ddl.PREVIEW_STATEMENT, lambda: tables_in_scope(text, []))
    assert text in error.message


@pytest.mark.parametrize(("text", "given"), [("ALTER TABLE t ADD c INT", []), ("DROP INDEX i ON d.t", ["t"])])
def test_a_table_without_its_schema_is_refused_with_the_way_out(text: str, given: list[str]) -> None:
    error = _refused(errors.ddl.PREVIEW_BARE_TABLE, lambda: tables_in_scope(text, given))
    assert error.values["table"] == "t"
    assert "--table schema.table" in error.workaround


def test_the_placeholder_becomes_the_shard_table() -> None:
    statement, ddl = statement_for("ALTER TABLE x ADD c INT, ADD FOREIGN KEY (c) REFERENCES y (id)", PLAN)
    assert statement.text == "ALTER TABLE `d_1`.`t``1` ADD c INT, ADD FOREIGN KEY (c) REFERENCES y (id)"
    assert (statement.schema, ddl.table.name) == ("d_1", ("d_1", "t`1"))


def test_a_new_name_alone_alters_nothing() -> None:
    def changes(text: str) -> bool:
        return changes_structure("task", PLAN, *statement_for(text, PLAN), lambda schema, table: schema == "d_1")

    assert changes("ALTER TABLE t ADD c INT")
    assert not changes("ALTER TABLE t RENAME TO d_1.u")
    assert changes("ALTER TABLE t RENAME TO d_1.u, ADD c INT")
    _refused(errors.ddl.RENAME_LEAVES, lambda: changes("ALTER TABLE t RENAME TO away.u"))
    _refused(errors.ddl.MOVES_ROWS, lambda: changes("ALTER TABLE t TRUNCATE PARTITION p"))
