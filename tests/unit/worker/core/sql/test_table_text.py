"""Cuts what servers print of a table into its parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.sql.table_text import UnreadableCreateTable, read_create_table


@pytest.mark.parametrize("text", ["", "CREATE VIEW `v` AS SELECT (1)", "CREATE TABLE `t` (`a` int", "CREATE TABLE t"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(UnreadableCreateTable):
        read_create_table(text)


def printed(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n").replace("\0", "\\0") + "'"


@given(st.lists(st.text(), min_size=1), st.text())
def test_quoted_text_never_cuts_or_joins_items(texts: list[str], comment: str) -> None:
    items = tuple(f"`c{index}` varchar(9) DEFAULT {printed(text)}" for index, text in enumerate(texts))
    parsed = read_create_table(f"CREATE TABLE `t` ({', '.join(items)}) ENGINE=x COMMENT={printed(comment)}")
    assert tuple(item.text for item in parsed.items) == items
    assert parsed.comment == printed(comment)


def test_columns_with_which_an_index_begins() -> None:
    text = "CREATE TABLE `t` (`a` int, `KEY` int, `c(` text, PRIMARY KEY (`a`,`KEY`) USING BTREE, KEY `(` (`c(`(9)))"
    for columns, found in ((["A"], True), (["key", "a"], True), (["KEY"], False), (["c("], True), (["("], False)):
        assert read_create_table(text).has_index_on(columns) is found
