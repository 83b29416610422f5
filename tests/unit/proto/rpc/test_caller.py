"""Who a caller is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import grpc
import pytest

from shardmerge.proto.rpc.caller import caller_name


def _context(peer: str, **auth: list[bytes]) -> grpc.ServicerContext:
    made = SimpleNamespace(peer=lambda: peer, auth_context=lambda: auth)
    return cast("grpc.ServicerContext", made)


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("ipv4:10.0.0.5:51234", "10.0.0.5"),
        ("ipv6:%5B::1%5D:51234", "::1"),
        ("unix:", "local socket"),
        ("other", "other"),
    ],
)
def test_without_a_certificate_it_is_the_address(peer: str, name: str) -> None:
    assert caller_name(_context(peer)) == name


def test_a_certificate_names_the_caller() -> None:
    assert caller_name(_context("ipv4:10.0.0.5:51234", x509_common_name=[b"alice"])) == "alice"
