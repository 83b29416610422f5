"""Tests that entries have no secrets, and keep what is none."""

from __future__ import annotations

import time

import pytest

from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.task_history.event import Entry, Event, Kind
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
        "ALTER TABLE t ADD COLUMN c INT COMMENT 'no secret'",
        "ALTER TABLE t ADD COLUMN c INT COMMENT 'no secret', ADD COLUMN d INT COMMENT 'x'",
        "Duplicate entry '1' for key 'PRIMARY'",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_an_entry_is_stored_without_secrets_and_halves_of_characters() -> None:
    event = Event(
        "t", Kind.DDL, 1.0, "x \ud800", message="IDENTIFIED BY 'hunter2'", statement="SET PASSWORD = 'hunter2' \udcff"
    )
    value = encode(Entry("n", event, 1.0), "worker w", "i")
    assert b"hunter2" not in value
    assert decode(pb.HistoryRecord, value) is not None


def test_a_long_text_takes_no_long_time() -> None:
    began = time.monotonic()
    for text in ("password" * 500, "'" * 4_000, "IDENTIFIED BY " * 300, "IDENTIFIED BY '" + "\\'" * 2_000, "a" * 4_000):
        without_secrets(text)
    assert time.monotonic() - began < 1.0
