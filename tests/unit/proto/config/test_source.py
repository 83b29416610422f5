"""Source files."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.config.source import parse_source, parse_source_file
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from tests.unit.proto.config.samples import SOURCE


def test_every_field() -> None:
    text = SOURCE + (
        "server-id: 7\nenable-gtid: true\ncase-sensitive: true\nrelay-binlog-name: mysql-bin.000009\n"
        "relay-binlog-gtid: 0-1-2\n"
    )
    config = parse_source(text, "s.yaml", {})
    endpoint = pb.Endpoint(host="10.0.0.5", port=3306, user="dm", password="007", session={"max_statement_time": "ON"})
    assert getattr(config, "from") == endpoint
    assert (config.source_id, config.flavor, config.server_id) == ("mysql-01", "mariadb", 7)
    assert config.enable_gtid
    assert config.case_sensitive
    assert (config.relay_start.file, config.relay_start.pos) == ("mysql-bin.000009", 4)
    assert config.relay_start.gtid_set == "0-1-2"
    assert config.purge == pb.PurgeConfig(interval_seconds=3600, expires_hours=24, remain_space_gib=15)


def test_defaults() -> None:
    config = parse_source("source-id: a\nfrom: {host: h, port: 1, user: u}\n", "s.yaml", {})
    assert config.flavor == "auto"
    assert config.server_id == 0
    assert not config.disabled
    assert not config.relay_start.file
    assert config.purge == pb.PurgeConfig(interval_seconds=3600, remain_space_gib=15)


def test_a_disabled_source() -> None:
    assert parse_source("enable: false\nsource-id: a\nfrom: {host: h, port: 1, user: u}\n", "s.yaml", {}).disabled


def test_dm_keys_without_effect_are_noted() -> None:
    notes = parse_source_file(SOURCE + "enable-relay: false\nchecker: {backoff-max: 5m}\n", "s", {}).notes
    assert notes == (
        "line 11: enable-relay: the relay log is always on",
        "line 12: checker: no effect: paused subtasks resume by themselves where the error allows it",
    )


@pytest.mark.parametrize(
    ("extra", "spec", "says"),
    [
        ("flavr: x", errors.config.INVALID, "s.yaml:11:1: flavr: unknown key; did you mean flavor?"),
        ("server-id: 4294967296", errors.config.INVALID, "s.yaml:11:12: server-id: must be at most 4294967295"),
        (
            "filters: [{schema-pattern: s, events: [delet], action: Ignore}]",
            errors.config.INVALID,
            "unknown event delet; did you mean delete?",
        ),
    ],
)
def test_refused(extra: str, spec: ErrorSpec, says: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        parse_source(SOURCE + extra + "\n", "s.yaml", {})
    assert caught.value.spec is spec
    assert says in caught.value.message


@pytest.mark.parametrize("bad", ["", "x" * 33, "a/b", "..", '"a\\tb"', '" a"'])
def test_source_ids_that_could_not_be_a_directory(bad: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        parse_source(SOURCE.replace("mysql-01", bad), "s.yaml", {})
    assert "source-id" in caught.value.message
