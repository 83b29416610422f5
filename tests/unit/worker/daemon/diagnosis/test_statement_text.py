"""A statement of another session is shown without its values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.daemon.diagnosis.statement_text import without_values


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("UPDATE `shop`.`orders` SET amount = -5 WHERE id = 7", "UPDATE `shop`.`orders` SET amount = -? WHERE id = ?"),
        (
            "CREATE USER app IDENTIFIED BY 'Hu''nter2' PASSWORD EXPIRE",
            "CREATE USER app IDENTIFIED BY ? PASSWORD EXPIRE",
        ),
        ('SET PASSWORD = PASSWORD("Hunter2")', "SET PASSWORD = PASSWORD(?)"),
        ("ALTER USER app IDENTIFIED BY 'Hunt", "ALTER USER app IDENTIFIED BY ?"),
        ("SELECT 'a\\' , 'Hunter2'", "SELECT ? …"),
        ("SELECT \"it's \\\" Hunter2\", 'Hunter2'", "SELECT ? …"),
        ("SELECT 'a' = \"b\\\" , 'Hunter2'", "SELECT ? = ? …"),
        ("SELECT `it's` + 'Hunter2' + `a``'b`", "SELECT `it's` + ? + `a``'b`"),
        ("SELECT 1 /* it's Hunter2 */+ 2 # Hunter2\n+ 3 -- Hunter2", "SELECT ? + ? + ?"),
        ("SELECT 5--1 /* Hunter2", "SELECT ?--?"),
        ("SELECT 0x48756e746572 = x'4875' + col0x1 + 0b11", "SELECT ? = x? + col0x1 + ?"),
        ("SELECT 1.5e-7 + .5 + a.b1 + order_01.c2", "SELECT ? + ? + a.b1 + order_01.c2"),
        (
            "INSERT INTO t (a, b) VALUES (1,'x',X'00',-2),( 3, NULL, 4 )",
            "INSERT INTO t (a, b) VALUES (?, …),( ?, NULL, ? )",
        ),
        ("INSERT INTO t VALUES (1,'x'),(2,'y'), (3,'z'),(4,'z", "INSERT INTO t VALUES (?, …), …,(?, …"),
        ("SELECT 1\n  FROM\tt\x1b[31m`\x9b\u202e`", "SELECT ? FROM t [31m` `"),
        ("", ""),
    ],
)
def test_values_are_left_out(statement: str, shown: str) -> None:
    assert without_values(statement) == shown


_PIECES = st.sampled_from(["'", '"', "`", "\\", "''", "/*", "*/", "--", "#", " ", "\n", "a", "0x1"])


@given(st.lists(_PIECES, max_size=12), st.sampled_from(["'", '"']), st.integers(0, 3), st.booleans())
def test_a_string_is_never_shown_wherever_the_statement_is_cut(
    inside: list[str], quote: str, cut: int, backslash_escapes: bool
) -> None:
    """The string is quoted as a client quotes it in both modes of the server."""
    value = "".join(inside) + "SECRET"
    escaped = value.replace("\\", "\\\\") if backslash_escapes else value
    text = f"SELECT 1, {quote}{escaped.replace(quote, quote * 2)}{quote}, {quote}SECRET{quote}"
    assert "SECRET" not in without_values(text[: len(text) - cut])
