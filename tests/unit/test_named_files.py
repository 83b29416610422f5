"""Checks that every file that a text of the tree names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(
    r"(?<![\w/.-])(?:worker|master|proto|ctl|tests|docs|deploy)(?:/[\w-]+)+\.(?:py|pyi|pxd|h|md|txt|proto|sh)\b"
)
_MADE = re.compile(r"_pb2(_grpc)?\.pyi?$")
"""Built, not kept."""


def _texts() -> list[Path]:
    folders = ("worker", "master", "proto", "ctl", "tests", "docs", "deploy")
    below = [path for folder in folders for ending in ("py", "md") for path in (ROOT / folder).rglob(f"*.{ending}")]
    # The demo keeps an environment of its own in deploy/.demo.
    kept = (path for path in below if not _MADE.search(path.name) and ".demo" not in path.parts)
    return [*ROOT.glob("*.md"), *kept]


def test_every_file_that_a_text_names_is_there() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in _texts()
        for name in _NAMED.findall(path.read_text(encoding="utf-8"))
        if not _MADE.search(name) and not (ROOT / name).exists()
    }
    assert not missing


_REFERENCE = re.compile(r":(?:class|func|meth|data|attr|exc|mod):`~?([\w.]+)(?:\(\))?`")
_PACKAGES = ("worker", "master", "proto", "ctl", "tests")


def test_every_name_that_a_docstring_refers_to_is_there() -> None:
    """A bare name has to occur in the module's code; of one with its module, both have to be there."""
    texts = {path: path.read_text(encoding="utf-8") for path in _texts() if path.suffix == ".py"}
    code = "\n".join(texts.values())
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts.items()
        for name in _REFERENCE.findall(text)
        if not _is_there(name, _REFERENCE.sub("", text), code)
    }
    assert not missing


def _is_there(name: str, text: str, code: str) -> bool:
    first, *rest = name.removeprefix("shardmerge.").split(".")
    if first not in _PACKAGES:
        return _holds(text, first) and all(_defines(code, part) for part in rest)
    path = ROOT / first
    while rest and ((path / rest[0]).is_dir() or (path / f"{rest[0]}.py").is_file()):
        path /= rest.pop(0)
    module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return not rest or all(_defines(module.read_text(encoding="utf-8"), part) for part in rest)


def _holds(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _defines(text: str, name: str) -> bool:
    """Whether it is made there, or passed on."""
    return (
        re.search(rf"^\s*(?:def |class )?{name}(?=\(|:|,| =| \[)|import .*\b{name}\b", text, re.MULTILINE) is not None
    )
