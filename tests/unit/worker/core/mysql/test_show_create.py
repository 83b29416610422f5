"""Literals in another character set than UTF-8, of which MySQL prints the bytes."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.mysql.show_create import with_exact_literals


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (b"DEFAULT (concat(_latin2'\xe9',_latin2'a'))", "DEFAULT (concat(_latin2 X'E9',_latin2'a'))"),
        (b"_latin2'\xe9?''\\\\ \\n\\'\\0'", "_latin2 X'E93F275C200A2700'"),
        (b"_gbk '\x81\x40'", "_gbk X'8140'"),
        ("_utf8mb4'é?'".encode(), "_utf8mb4'é?'"),
        ("COMMENT 'é' _latin1'é'".encode(), "COMMENT 'é' _latin1'é'"),
    ],
)
def test_exact_literals(shown: bytes, text: str) -> None:
    assert with_exact_literals(shown) == text
