"""A table's structure after a statement, from the tracker's result."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.ddl.structure.schema_tracker import DeclaredColumns, merge_tracked

ID = Column("id", ValueKind.INTEGER, "int", nullable=False, auto_increment=True)
N = Column("n", ValueKind.INTEGER, "int", nullable=True)
JSON = Column("j", ValueKind.JSON, "json", nullable=True)
TEXT = Column("s", ValueKind.STRING, "varchar(9)", nullable=True, charset="utf8mb4", collation="utf8mb4_0900_ai_ci")
SOURCE = Table("d", "t", (ID, N, JSON, TEXT), (0,), "PRIMARY", (("id",),), True, "InnoDB")

# As another kind of server describes them.
ID_THERE = Column("id", ValueKind.INTEGER, "int(11)", nullable=False)
N_THERE = replace(N, type_text="int(11)")
JSON_THERE = Column("j", ValueKind.STRING, "longtext", nullable=True, charset="utf8mb4", collation="utf8mb4_bin")
TEXT_THERE = replace(TEXT, collation="utf8mb4_uca1400_nopad_ai_ci")
BEFORE = Table("m", "x", (ID_THERE, N_THERE, JSON_THERE, TEXT_THERE), (0,), "PRIMARY", (("id",),), False, "InnoDB")


def behind(*columns: Column, declared: tuple[str, ...] = (), key: tuple[int, ...] = (0,), **renamed: str) -> Table:
    """``renamed``: new names to old ones."""
    return merge_tracked(SOURCE, BEFORE, replace(BEFORE, columns=columns, key=key), DeclaredColumns(declared, renamed))


def test_unchanged_columns_stay_as_the_source_described_them() -> None:
    assert behind(*BEFORE.columns) == SOURCE


def test_a_new_column_is_as_the_server_describes_it() -> None:
    new = Column("m", ValueKind.INTEGER, "bigint(20)", nullable=False)
    found = behind(new, *BEFORE.columns, declared=("m",), key=(1,))
    assert found.columns == (new, *SOURCE.columns)
    assert found.key == (1,)


def test_a_renamed_column_stays_as_it_was() -> None:
    found = behind(ID_THERE, N_THERE, replace(JSON_THERE, name="K"), TEXT_THERE, k="j")
    assert found.columns == (ID, N, replace(JSON, name="K"), TEXT)


def test_a_column_renamed_to_a_dropped_ones_name() -> None:
    found = behind(ID_THERE, N_THERE, replace(JSON_THERE, name="s"), s="j")
    assert found.columns == (ID, N, replace(JSON, name="s"))


def test_columns_that_swap_their_names() -> None:
    found = behind(ID_THERE, N_THERE, replace(JSON_THERE, name="s"), replace(TEXT_THERE, name="j"), s="j", j="s")
    assert found.columns[2:] == (replace(JSON, name="s"), replace(TEXT, name="j"))


def test_a_reused_name_is_another_column() -> None:
    new = replace(N_THERE, type_text="bigint(20)")
    found = behind(ID_THERE, replace(N_THERE, name="m"), new, declared=("n",), m="n")
    assert found.columns == (ID, replace(N, name="m"), new)


def test_a_changed_column_is_as_the_server_describes_it() -> None:
    wider = replace(N_THERE, type_text="bigint(20)")
    assert behind(ID_THERE, wider, declared=("n",)).columns[1] == wider
    other = replace(TEXT_THERE, collation="utf8mb4_bin")  # CONVERT TO names no column
    assert behind(ID_THERE, other).columns[1] == other


def test_a_redeclared_column_is_as_the_statement_declares_it() -> None:
    """LONGTEXT in the place of what was JSON looks the same where JSON is LONGTEXT."""
    assert behind(ID_THERE, N_THERE, JSON_THERE, TEXT_THERE, declared=("j",)).columns[2] == JSON_THERE


def test_the_keys_are_the_servers() -> None:
    now = replace(BEFORE, key=(1,), key_name="u", key_hidden=True, unique_keys=(("n",), ("id",)))
    found = merge_tracked(SOURCE, BEFORE, now, DeclaredColumns())
    assert (found.key, found.key_name, found.key_hidden) == ((1,), "u", True)
    assert found.unique_keys == (("n",), ("id",))
    assert (found.schema, found.name) == ("d", "t")
