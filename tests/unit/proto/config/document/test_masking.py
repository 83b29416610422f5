"""Configuration without its secrets: valid, and otherwise as it was written."""

from __future__ import annotations

import os
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from shardmerge.proto.config.daemon.daemon_file import parse_master, parse_worker, shown
from shardmerge.proto.config.document.masking import holds_secrets, masked, with_password
from shardmerge.proto.config.secrets.key_file import default_key_path
from shardmerge.proto.config.task.task_file import parse_task
from tests.unit.proto.config import samples

STYLES = [
    ("password: s3cret # why\nuser: dm\n", 'password: "******" # why\nuser: dm\n'),
    ("password: 'it''s'\n", 'password: "******"\n'),
    ('x: {password: "a\\"b", port: 1}\n', 'x: {password: "******", port: 1}\n'),
    ("password: |\n  s3cret\nuser: dm\n", 'password: "******"\nuser: dm\n'),
    ("password: >-\n  s3cret\n\nuser: dm\n", 'password: "******"\n\nuser: dm\n'),
    ("password: s3cret\n  goes on\nuser: dm\n", 'password: "******"\nuser: dm\n'),
    ("password: &p s3cret\nother: {password: *p}\n", 'password: &p "******"\nother: {password: *p}\n'),
    ("user: &p s3cret\npassword: *p\n", 'user: &p "******"\npassword: *p\n'),
    ("password: !!str s3cret\nport: 1\n", 'password: "******"\nport: 1\n'),
    ("of:\n  - password: s3cret\n", 'of:\n  - password: "******"\n'),
    ("a: {ssl-key-base64: s3cret}\n", 'a: {ssl-key-base64: "******"}\n'),
    ("a: {ssl-key-bytes: [45, 46]}\n", 'a: {ssl-key-bytes: ["******", "******"]}\n'),
    ("é: 1\npassword: 平仮名s3cret\n", 'é: 1\npassword: "******"\n'),
]


@pytest.mark.parametrize(("text", "expected"), STYLES)
def test_a_password_in_every_style(text: str, expected: str) -> None:
    assert masked(text) == expected
    assert masked(expected) == expected
    assert holds_secrets(text)


@pytest.mark.parametrize(
    "text", ["password: ${DM_PASSWORD}\n", "password: ''\n", "password:\n", "passwords: x\n", "a: [1]\n", ""]
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text
    assert not holds_secrets(text)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1))
def test_any_password_goes_and_nothing_else(password: str) -> None:
    def load(text: str) -> object:
        return YAML(typ="safe", pure=True).load(text)

    quoted = "'" + password.replace("'", "''") + "'"
    text = f"a: 1 # é\nfrom:\n  password: {quoted}\n  user: dm\n"
    if password.startswith("${") and masked(text) == text:
        return
    assert load(masked(text)) == {"a": 1, "from": {"password": "******", "user": "dm"}}
    assert masked(text) == text.replace(f"password: {quoted}", 'password: "******"')


def test_a_masked_task_file_is_a_task_file() -> None:
    text = samples.TASK
    assert 'password: "p: w"' in text
    assert "p: w" not in masked(text)
    assert parse_task(masked(text), "t", None).name == parse_task(text, "t", None).name


def test_settings_are_a_file_of_the_same_settings() -> None:
    worker = parse_worker("spark: {spark.executor.cores: 2}\n", "w.yaml", {"name": "w", "etcd": "a:1,b:2"})
    text = shown(worker)
    again = parse_worker(text, "again")
    assert again.spark_settings() == worker.spark_settings()
    key = {"secret_key_path": default_key_path(os.environ)}
    assert again.model_copy(update={"spark": worker.spark}) == worker.model_copy(update=key)
    master = parse_master("", "m.yaml", {"name": "m", "log-level": "warn"})
    assert parse_master(shown(master), "again") == master.model_copy(update=key)
    named = parse_master("secret-key-path: /k\n", "m.yaml", {"name": "m"})
    assert parse_master(shown(named), "again") == named


def test_secrets_of_spark_are_not_shown() -> None:
    worker = parse_worker(
        "spark: {spark.hadoop.fs.s3a.secret.key: s3cret, spark.ssl.keyPassword: s3cret, spark.app.name: x}\n", "w"
    )
    assert "s3cret" not in shown(worker)
    assert "spark.app.name: x" in shown(worker)
    assert "spark" in shown(parse_worker("", "w"))


def test_an_encrypted_password_is_masked_and_is_no_plain_text() -> None:
    text = samples.SOURCE.replace("007", "enc:v1:AAAA")
    assert not holds_secrets(text)
    assert "enc:v1" not in masked(text)
    assert holds_secrets(samples.SOURCE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('from: {host: h, password: "${DM_X}"} # why\n', 'from: {host: h, password: "a\\"b"} # why\n'),
        ("from: {host: h}\n", 'from: {password: "a\\"b", host: h}\n'),
        ("from:\n  host: h\nfilters: []\n", 'from:\n  password: "a\\"b"\n  host: h\nfilters: []\n'),
        ("from:\n  # of the server\n  host: h\n", 'from:\n  # of the server\n  password: "a\\"b"\n  host: h\n'),
        ("from:\n  host: h\n  password: enc:v1:x\n", 'from:\n  host: h\n  password: "a\\"b"\n'),
        ("from: &s\n  host: h\n", 'from: &s\n  password: "a\\"b"\n  host: h\n'),
        ("source-id: x\n", "source-id: x\n"),
    ],
)
def test_a_password_that_was_asked_for_replaces_that_of_the_file(text: str, expected: str) -> None:
    assert with_password(text, 'a"b') == expected
    loaded = cast("dict[str, object]", YAML(typ="safe", pure=True).load(expected))
    assert loaded.get("from") in (None, {"host": "h", "password": 'a"b'})
