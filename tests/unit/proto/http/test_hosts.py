"""Tests for which hosts the endpoint answers."""

from __future__ import annotations

import pytest

from shardmerge.proto.http.hosts import checked_host, is_asked_for


@pytest.mark.parametrize(
    ("address", "has_tls", "expected"),
    [
        ("127.0.0.1:9262", False, "127.0.0.1"),
        ("[::1]:9262", False, "::1"),
        ("localhost.localdomain:9262", False, "localhost.localdomain"),
        ("127.0.0.1:9262", True, None),
        ("10.0.0.1:9262", False, None),
        (":9262", False, None),
        ("worker-1.example:9262", False, None),
    ],
)
def test_where_the_host_is_checked(address: str, has_tls: bool, expected: str | None) -> None:
    assert checked_host(address, has_tls=has_tls) == expected


@pytest.mark.parametrize(
    "host",
    ["", "127.0.0.1", "127.0.0.1:9262", "[::1]:9262", "::1", "localhost", "LOCALHOST.:80", "a.localhost:1", "10.0.0.9"],
)
def test_what_is_answered(host: str) -> None:
    assert is_asked_for(host, "127.0.0.1")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9262", "127.0.0.1.evil.example", "localhost.evil.example", "notlocalhost", "[evil]"],
)
def test_what_is_not(host: str) -> None:
    assert not is_asked_for(host, "127.0.0.1")
