"""Which files of installed packages are packed: wheels, editable packages, modules without a package."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.daemon.pack.packages import module_entries, package_entries


def _installed(site: Path, files: dict[str, str], **metadata: str) -> PathDistribution:
    """Install a package ``own`` in folder ``site`` with these files, which are listed."""
    info = site / "own-1.0.dist-info"
    info.mkdir(parents=True)
    for name, text in {"METADATA": "Name: own\nVersion: 1.0\n", **metadata}.items():
        (info / name).write_text(text, encoding="utf-8")
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    listed = [*files, *(f"own-1.0.dist-info/{name}" for name in ("METADATA", "RECORD", *metadata)), "own/gone.py"]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in listed), encoding="utf-8")
    return PathDistribution(info)


def _names(package: PathDistribution) -> set[str]:
    return {entry.name for entry in package_entries("own", package, "lib")}


def test_a_wheel_has_what_its_installation_listed(tmp_path: Path) -> None:
    site = tmp_path / "site"
    package = _installed(
        site,
        {"own/__init__.py": "", "own/data.json": "{}", "own/__pycache__/x.pyc": "", "../bin/own": "#!"},
        INSTALLER="pip",
    )
    (site / "own" / "server.key").write_text("secret", encoding="utf-8")
    (site / "secret.yaml").write_text("secret", encoding="utf-8")
    assert _names(package) == {"lib/own/__init__.py", "lib/own/data.json", "lib/own-1.0.dist-info/METADATA"}


def test_an_editable_package_has_only_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "checkout" / "of_the_checkout"
    (source / ".git").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "linked.py").touch()
    (source / "part").symlink_to(tmp_path / "elsewhere")
    for name in ("__init__.py", "fast.so", "worker.yaml", "server.key", ".env", ".git/hook.py", "py.typed"):
        (source / name).touch()
    monkeypatch.setattr(sys, "path", [str(source.parent), *sys.path])
    editable = json.dumps({"url": "file:///checkout", "dir_info": {"editable": True}})
    package = _installed(
        tmp_path / "site",
        {"__editable__.own.pth": "x"},
        **{"direct_url.json": editable, "top_level.txt": "of_the_checkout"},
    )
    assert _names(package) == {
        *(f"lib/of_the_checkout/{name}" for name in ("__init__.py", "fast.so", "py.typed", "part/linked.py")),
        *(f"lib/own-1.0.dist-info/{name}" for name in ("METADATA", "top_level.txt")),
    }


def test_an_editable_package_without_names_is_refused(tmp_path: Path) -> None:
    editable = json.dumps({"url": "file:///checkout", "dir_info": {"editable": True}})
    package = _installed(tmp_path / "site", {"own.pth": "/checkout"}, **{"direct_url.json": editable})
    with pytest.raises(ShardmergeError, match=r"top_level\.txt") as caught:
        _names(package)
    assert caught.value.spec is errors.worker.PACK_PACKAGE_REFUSED


def test_a_module_without_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_a_user.py").touch()
    (tmp_path / "secret.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert [entry.name for entry in module_entries("module_of_a_user", "lib")] == ["lib/module_of_a_user.py"]
    with pytest.raises(ShardmergeError, match="no_such_module cannot be packed") as caught:
        list(module_entries("no_such_module", "lib"))
    assert caught.value.spec is errors.worker.PACK_PACKAGE_REFUSED
