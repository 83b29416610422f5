"""Addresses of daemons."""

from __future__ import annotations

import pytest

from shardmerge.proto.config.address import from_this_machine


@pytest.mark.parametrize(
    ("listens", "reached"),
    [
        (":8262", "127.0.0.1:8262"),
        ("0.0.0.0:8262", "127.0.0.1:8262"),
        ("[::]:8262", "[::1]:8262"),
        ("10.0.0.5:8262", "10.0.0.5:8262"),
        ("worker-1.internal:8262", "worker-1.internal:8262"),
    ],
)
def test_a_daemon_is_reached_from_its_own_machine(listens: str, reached: str) -> None:
    assert from_this_machine(listens) == reached
