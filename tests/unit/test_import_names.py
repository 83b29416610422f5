"""No module can be imported under two names: a second one would have another copy of every class."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize("name", ["ctl", "master", "proto", "worker"])
def test_a_top_level_folder_names_the_right_import(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders are at the repository's root, which is on the path of the tests."""
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=f"^import shardmerge\\.{name}, not {name}$"):
        importlib.import_module(name)
    assert name not in sys.modules
