"""Tests that entries have no secrets, and keep what is none."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.config.document.redacted import scrubbed
from shardmerge.proto.task_history import secrets
from shardmerge.proto.task_history.event import Event, HistoryEntry, HistoryEntryKind
from shardmerge.proto.task_history.record import decode, encode
from shardmerge.proto.task_history.secrets import without_secrets

_TEXTS = (
    "CREATE USER a@b IDENTIFIED BY '{}'",
    "ALTER USER a IDENTIFIED WITH caching_sha2_password BY '{}' REPLACE 'x'",
    "CREATE USER a IDENTIFIED VIA mysql_native_password USING '{}'",
    "CREATE USER a IDENTIFIED VIA ed25519 USING PASSWORD('{}')",
    "GRANT ALL ON a.* TO b IDENTIFIED BY PASSWORD '{}'",
    "SET PASSWORD FOR a = PASSWORD('{}')",
    "SET PASSWORD = '{}'",
    "CHANGE MASTER TO MASTER_HOST='h', MASTER_PASSWORD='{}', MASTER_PORT=3306",
    "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD '{}')",
    "UPDATE t SET `password` = '{}' WHERE id = 1",
    'UPDATE t SET api_key = "{}" WHERE id = 1',
    "near 'IDENTIFIED BY '{}",
    "the server sent password: '{}'",
    "SET PASSWORD FOR 'u'@'%' = '{}'",
    "set /* a */ password for 'u'@'%' = OLD_PASSWORD('x'), '{}'",
    "ALTER USER u IDENTIFIED BY 'x' REPLACE '{}'",
    "CREATE OR REPLACE USER u IDENTIFIED VIA a USING 'x' OR b USING '{}'",
    "/* a */ GRANT ALL ON a.* TO b IDENTIFIED WITH c BY 'x' REPLACE '{}'",
    "near 'ALTER USER u IDENTIFIED BY 'x' REPLACE '{}'",
    "x IDENTIFIED BY /*c*/ '{}'",
    "x IDENTIFIED /* ' */ BY -- c\n '{}'",
    "x IDENTIFIED /*!80000 BY */ '{}'",
    "x IDENTIFIED BY'{}'",
    "OPTIONS (USER 'u', PASSWORD /* of u */ '{}')",
    "UPDATE t SET password /* now */ = # then\n '{}'",
    "ADD password VARCHAR(9) DEFAULT '{}'",
    "ADD `api_key` VARCHAR(9) CHARACTER SET ascii NOT NULL DEFAULT /* c */ ('{}')",
    "ADD a INT DEFAULT '5', ADD token ENUM('a', '(') COMMENT 'DEFAULT' DEFAULT _utf8mb4 '{}'",
    "ALTER COLUMN user_secret SET DEFAULT '{}'",
    "CREATE TABLE t (id INT DEFAULT '1', db_passwd CHAR(9) DEFAULT \"{}\", c INT)",
    "IDENTIFIED BY '{}\\",
)


@pytest.mark.parametrize("text", _TEXTS)
def test_a_literal_is_masked(text: str) -> None:
    found = without_secrets(text.format("hunter2"))
    assert "hunter2" not in found
    assert "******" in found
    assert without_secrets(text.format("hun\\'ter2")) != text.format("hun\\'ter2")
    assert "ter2" not in without_secrets(text.format("hun''ter2"))


@pytest.mark.parametrize(
    "text",
    [
        "ENGINE=FEDERATED CONNECTION='mysql://user:hunter2@host/db/t'",
        "cannot connect: password=hunter2, user=a",
        "enc:v1:hunter2==",
    ],
)
def test_other_forms_are_masked(text: str) -> None:
    found = without_secrets(text)
    assert "hunter2" not in found
    assert "******" in found


@pytest.mark.parametrize(
    "text",
    [
        "Access denied for user 'a'@'h' (using password: YES)",
        "ALTER TABLE t ADD COLUMN password VARCHAR(64) NOT NULL DEFAULT '', ADD KEY k (token)",
        "ALTER TABLE t ADD KEY k (token), ADD c INT DEFAULT '5'",
        "CREATE TABLE tokens (id INT DEFAULT '5', c CHAR(3) DEFAULT 'a') COMMENT='x'",
        "password VARCHAR(9), c CHAR(3) DEFAULT 'a'",
        "UPDATE t SET c = 'x' /* no user */, d = 'GRANT'",
        "ALTER TABLE t ADD COLUMN c INT COMMENT 'no secret'",
        "ALTER TABLE t ADD COLUMN c INT COMMENT 'no secret', ADD COLUMN d INT COMMENT 'x'",
        "Duplicate entry '1' for key 'PRIMARY'",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_an_entry_is_stored_without_secrets_and_halves_of_characters() -> None:
    event = Event(
        "t",
        HistoryEntryKind.DDL,
        1.0,
        "x \ud800",
        message="IDENTIFIED BY 'hunter2'",
        statement="SET PASSWORD = 'hunter2' \udcff",
    )
    value = encode(HistoryEntry("n", event, 1.0), "worker w", "i")
    assert b"hunter2" not in value
    assert decode(pb.HistoryRecord, value) is not None


def test_a_secret_at_the_place_of_a_cut_stays_masked() -> None:
    assert "hunter" not in without_secrets("mysql://user:hunter", is_cut=True)
    for secret in ("IDENTIFIED BY '{}'", "password={}", "mysql://user:{}@host/db", "MASTER_PASSWORD = '{}'"):
        for length in (*range(640, 720, 3), *range(1_640, 1_720, 3)):
            statement = " " * length + secret.format("hunter2" * 20) + " " * 2_000
            value = encode(
                HistoryEntry("n", Event("t", HistoryEntryKind.DDL, 1.0, "x", statement=statement), 1.0), "worker w", "i"
            )
            assert b"hun" not in value, (secret, length)


_PARTS = (
    *("password", "password$", "$a", "a_", "token ", "apikey=", "identified ", "identified by ", "identified with a"),
    *("set ", "set /*", "create user ", "'", '"', "`", "''", "\\", "\\'", "password '\\' ", "'a", "a'\\", "_a'", "x'"),
    *(" ", "\n", "-", "-- ", "#", "/*", "*/", "/*!1", "password /*", "password -- ", "(", ")", "password (", ",", "="),
    *("default ", "password default ", "://", "://a:", "enc:v1:", "-----BEGIN a-----", "-----END a", "0x", "é"),
)


@pytest.mark.parametrize("part", _PARTS)
def test_no_text_takes_long(part: str) -> None:
    """A worker that computes for seconds loses its leases, and the author of a statement chooses the text."""
    for before in ("", "'", "password /*", "alter user "):
        for after in ("", "\\"):
            text = before + part * (4_000 // len(part)) + after
            began = time.thread_time()
            without_secrets(text, is_cut=True)
            assert time.thread_time() - began < 0.2, text[:40]


def test_an_entry_of_a_hostile_statement_is_encoded_at_once() -> None:
    text = "password$" * 50_000
    event = Event("t", HistoryEntryKind.DDL, 1.0, text, message=text, statement=text)
    began = time.thread_time()
    encode(HistoryEntry("n", event, 1.0), "worker w", "i")
    assert time.thread_time() - began < 0.2


_FORMER_LITERAL = r"""(?:'(?:[^'\\]|\\.|'')*+(?:'|\Z)|"(?:[^"\\]|\\.|"")*+(?:"|\Z))"""
_FORMER_NAME = r"[\w$]*(?:password|passwd|secret|credential|token|api_?key)[\w$]*[`\"']?"
_FORMER_IN_SQL = re.compile(
    rf"(\bIDENTIFIED\s+(?:(?:WITH|VIA)\s+\S+\s+)?(?:BY|AS|USING)\s+(?:PASSWORD\s*)?\(?\s*"
    rf"|\b{_FORMER_NAME}(?:\s*[=:(]\s*|\s+)|\bAUTHENTICATION\s+STRING\s+){_FORMER_LITERAL}",
    re.IGNORECASE | re.DOTALL,
)
_FORMER_BARE = re.compile(rf"(\b{_FORMER_NAME}\s*[=:]\s*)(?!YES\b|NO\b|'|\"|\(|\*)[^\s,;)]+", re.IGNORECASE)


def _former(text: str) -> str:
    """What masked the first histories, in cubic time: everything that it finds is still masked."""
    return _FORMER_BARE.sub(r"\1******", _FORMER_IN_SQL.sub(r"\1'******'", scrubbed(text)))


_WORDS = st.sampled_from((*_PARTS, "hunter2", "'hunter2'", "VARCHAR(9)", "with ", "by ", "user ", "x", ":", ";", "@"))


@given(st.lists(_WORDS, max_size=20).map("".join))
def test_what_was_masked_by_the_former_expressions_still_is(text: str) -> None:
    found = without_secrets(text)
    assert found.count("hunter2") <= _former(text).count("hunter2")
    if "hunter2" not in _former(text):
        assert "hunter2" not in found


_REPEATED_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{\d*,?\d*\})\+")


def test_every_supported_python_finds_the_same() -> None:
    """Python 3.11.2, that of Debian 12, misses texts where the repetition of a group is possessive."""
    compiled: list[re.Pattern[str]] = [value for value in vars(secrets).values() if isinstance(value, re.Pattern)]
    expressions = [each.pattern for each in compiled]
    assert len(expressions) >= 7
    for expression in expressions:
        assert _REPEATED_GROUP.search(expression) is None, expression
