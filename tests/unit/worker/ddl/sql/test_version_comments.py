"""Comments with code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.ddl.sql.version_comments import Server, expand_version_comments

MARIADB = Server(is_mariadb=True, version=(10, 11, 19))
MYSQL = Server(is_mariadb=False, version=(9, 4, 0))


@pytest.mark.parametrize(
    ("comment", "mariadb", "mysql"),
    [
        ("/*! c */", True, True),
        ("/*!40100 c */", True, True),
        ("/*!50699 c */", True, True),
        ("/*!50700 c */", False, True),
        ("/*!80023 c */", False, True),
        ("/*!90400 c */", False, True),
        ("/*!90401 c */", False, False),
        ("/*!99999 c */", False, False),
        ("/*!100100 c */", True, False),
        ("/*!101200 c */", False, False),
        ("/*M! c */", True, False),
        ("/*M!100100 c */", True, False),
        ("/*M!110000 c */", False, False),
    ],
)
def test_which_server_executes_the_code(comment: str, mariadb: bool, mysql: bool) -> None:
    for server, runs in ((MARIADB, mariadb), (MYSQL, mysql)):
        assert expand_version_comments(f"a {comment} b", 0, server).split() == (["a", "c", "b"] if runs else ["a", "b"])


def test_nested_version_comments() -> None:
    text = "a /*!50000 b /*!80000 c */ d */ e /*!999999 f /*! g */ h */ i"
    assert expand_version_comments(text, 0, MARIADB).split() == ["a", "b", "d", "e", "i"]
    assert expand_version_comments(text, 0, MYSQL).split() == ["a", "b", "c", "d", "e", "i"]


def test_digits_after_the_version_are_code() -> None:
    assert expand_version_comments("/*!0401002 */", 0, MYSQL).split() == ["2"]
    assert expand_version_comments("x/*!12*/", 0, MYSQL).split() == ["x", "12"]


def test_other_comments_stay() -> None:
    text = "a /* ! b */ '/*!80000 c */' `/*!` -- /*! d */\n e"
    assert expand_version_comments(text, 0, MARIADB) == text


@given(st.text(alphabet="/*!M80 'a`", max_size=30))
def test_any_text_is_read(text: str) -> None:
    expand_version_comments(text, 0, MYSQL)
