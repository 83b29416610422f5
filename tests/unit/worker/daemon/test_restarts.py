"""The count of restarts in place is read from the environment."""

from __future__ import annotations

import pytest

from shardmerge.worker.daemon.restarts import RESTARTS, restarts_so_far


@pytest.mark.parametrize(("given", "wanted"), [("", 0), ("3", 3), ("-1", 0), ("x", 0), ("²", 0), ("1 2", 0)])
def test_the_count(monkeypatch: pytest.MonkeyPatch, given: str, wanted: int) -> None:
    monkeypatch.setenv(RESTARTS, given)
    assert restarts_so_far() == wanted


def test_none_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RESTARTS, raising=False)
    assert restarts_so_far() == 0
