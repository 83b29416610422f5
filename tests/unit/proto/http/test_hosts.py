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
    [
        "",
        "127.0.0.1",
        "127.0.0.1:9262",
        "[::1]:9262",
        "[2001:db8::9]",
        "localhost:",
        "localhost",
        "LOCALHOST.:80",
        "a.localhost:1",
        "10.0.0.9",
    ],
)
def test_what_is_answered(host: str) -> None:
    assert is_asked_for(host, "127.0.0.1")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9262", "127.0.0.1.evil.example", "localhost.evil.example", "notlocalhost", "[evil]"],
)
def test_what_is_not(host: str) -> None:
    assert not is_asked_for(host, "127.0.0.1")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:80@evil.com",
        "localhost@evil.example",
        "evil.example@localhost",
        "user:word@127.0.0.1",
        "127.0.0.1:80:81",
        "localhost:http",
        "localhost:-1",
        "localhost:123456",
        "localhost:\u0661",
        "::1",
        "[::1]evil.example",
        "[::1]:80@evil.example",
        "evil.example[::1]",
        "[::1",
        "::1]",
        "[localhost]",
        "[127.0.0.1]",
        "[fe80::1%evil.example]",
        "[v1.a]",
        "localhost/evil.example",
        "localhost?evil",
        "localhost#evil",
        "localhost,evil.example",
        "evil.example,a.localhost",
        "localhost evil.example",
        "evil%2elocalhost",
        "evil.example\\.localhost",
        "localhost..",
        ".localhost",
        "a..localhost",
        ".",
        ":80",
        "[]:80",
        "localhost\n",
        "http://localhost",
    ],
)
def test_what_is_no_host_with_a_port(host: str) -> None:
    """RFC 9110, 7.2, and RFC 3986, 3.2: no user, and nothing after the port."""
    assert not is_asked_for(host, "127.0.0.1")
    assert not is_asked_for(host, "localhost")
