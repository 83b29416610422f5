"""Networks and hosts that may be connected to."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors
from shardmerge.proto.config.daemon.daemon_file import parse_master, parse_worker
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.networks import Networks


def of(*entries: str) -> Networks:
    made = Networks.of(entries)
    assert made is not None
    return made


def test_nothing_given_allows_everything() -> None:
    assert Networks.of(()) is None


@pytest.mark.parametrize(
    ("entry", "host", "address", "expected"),
    [
        ("10.0.0.0/8", "db", "10.9.8.7", True),
        ("10.0.0.0/8", "db", "11.0.0.1", False),
        ("10.1.2.3/8", "db", "10.9.8.7", True),  # its network is meant
        ("10.0.0.0/8", "db", "::ffff:10.9.8.7", True),
        ("10.0.0.0/8", "db", "::ffff:11.0.0.1", False),
        ("10.0.0.0/8", "10.0.0.1.evil.example", "11.0.0.1", False),
        ("fd00::/8", "db", "fd12::1", True),
        ("fe80::/10", "db", "fe80::1%eth0", True),
        ("192.0.2.7", "db", "192.0.2.7", True),
        ("192.0.2.7", "db", "192.0.2.8", False),
        ("DB-1.internal", "db-1.Internal.", "203.0.113.1", True),
        ("db-1.internal", "db-2.internal", "203.0.113.1", False),
        ("db-1.internal", "203.0.113.1", "203.0.113.1", False),
    ],
)
def test_what_is_allowed(entry: str, host: str, address: str, expected: bool) -> None:
    assert of("198.51.100.0/24", entry).allow(host, address) is expected


def test_literal_addresses_are_distinguished_from_names() -> None:
    allowed = of("10.0.0.0/8")
    assert allowed.refuse_host("192.0.2.1")
    assert allowed.refuse_host("::1")
    assert not allowed.refuse_host("10.1.1.1")
    assert not allowed.refuse_host("db-1")


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "10.0.0", "a b", "", "http://db", "db:3306", "*"])
@pytest.mark.parametrize("parse", [parse_master, parse_worker])
def test_entries_that_are_none(parse: object, entry: str) -> None:
    assert callable(parse)
    with pytest.raises(ShardmergeError) as caught:
        parse(f"allowed-networks: ['{entry}']\n", "d.yaml")
    assert caught.value.spec is errors.config.INVALID
    assert "d.yaml:1:20: allowed-networks[0]: must be a network (10.0.0.0/8), an address or the name of a host" in (
        caught.value.message
    )


def test_lists_as_flags() -> None:
    assert parse_worker("", "d", {"allowed-networks": "10.0.0.0/8, db-1"}).allowed_networks == ("10.0.0.0/8", "db-1")
    assert parse_master("", "d", {"env-prefixes": "A_,B_"}).env_prefixes == ("A_", "B_")
    assert parse_master("", "d").env_prefixes == ("SHARDMERGE_", "DM_")
    with pytest.raises(ShardmergeError) as caught:
        parse_master("env-prefixes: ['']\n", "d.yaml")
    assert "d.yaml:1:16: env-prefixes[0]" in caught.value.message
