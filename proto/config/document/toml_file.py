"""Reads TOML, which DM uses for dm-master and dm-worker, to the same tree as YAML, with the line of each key."""

from __future__ import annotations

import re
import tomllib
from pathlib import PurePath
from typing import cast

from shardmerge.proto.config.document.yaml_file import MAX_BYTES, Document, Tree, YamlPlace
from shardmerge.proto.config.finding import ConfigFinding, KeyPath
from shardmerge.proto.errors import config

_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=\s*""")
_TABLE = re.compile(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]{1,2}\s*(?:#.*)?")
_AT = re.compile(r"\(at line (\d+), column (\d+)\)")
_MAX_DEPTH = 50


def looks_like_toml(text: str, file: str) -> bool:
    """Decide by the file's suffix, else by its first significant line."""
    suffix = PurePath(file).suffix.lower()
    if suffix in {".toml", ".yaml", ".yml"}:
        return suffix == ".toml"
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return bool(_KEY.match(line) or (_TABLE.fullmatch(line) and "," not in line))
    return False


def compose_toml(text: str, file: str) -> tuple[Document | None, list[ConfigFinding]]:
    """A TOML file, whose scalars become the text that YAML would have; or None and the findings. Pure."""
    if len(text) > MAX_BYTES:
        message = f"{len(text)} characters are more than a configuration file may have ({MAX_BYTES})"
        return None, [ConfigFinding(file, 1, 1, "", message, spec=config.TOO_LARGE)]
    try:
        content = tomllib.loads(text.removeprefix("\ufeff"))
        root = {key: _tree(value, 0) for key, value in content.items()}
    except tomllib.TOMLDecodeError as error:
        place = _AT.search(str(error))
        line, column = (int(place[1]), int(place[2])) if place else (text.count("\n") + 1, 1)
        # The message quotes at most the name of a key.
        reason = _AT.sub("", str(error)).removesuffix(" (at end of document)").strip()
        return None, [ConfigFinding(file, line, column, "", f"not TOML: {reason}", spec=config.NOT_TOML)]
    except (ValueError, OverflowError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "a value that TOML does not allow"
        return None, [ConfigFinding(file, 1, 1, "", f"not TOML: {reason}", spec=config.NOT_TOML)]
    keys, values = _places(text)
    return Document(file, root, keys, values), []


def _tree(value: object, depth: int) -> Tree:
    if depth > _MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        return {key: _tree(item, depth + 1) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_tree(item, depth + 1) for item in cast("list[object]", value)]
    return str(value).lower() if isinstance(value, bool) else str(value)


def _places(text: str) -> tuple[dict[KeyPath, YamlPlace], dict[KeyPath, YamlPlace]]:
    """The places of keys and their values, found line by line: enough for these files, whose values take one line each.
    A line inside a longer value may be mistaken for a key, which only affects a reported place."""
    keys: dict[KeyPath, YamlPlace] = {}
    values: dict[KeyPath, YamlPlace] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), start=1):
        heading = _TABLE.fullmatch(line)
        if heading is not None:
            table = _parts(heading[1])
            place = YamlPlace(number, line.index("[") + 1)
            keys.setdefault(table, place)
            values.setdefault(table, place)
            continue
        found = _KEY.match(line)
        if found is not None:
            path = (*table, *_parts(found[1]))
            keys.setdefault(path, YamlPlace(number, found.start(1) + 1))
            values.setdefault(path, YamlPlace(number, found.end() + 1))
    return keys, values


def _parts(text: str) -> KeyPath:
    return tuple(part.strip().strip("\"'") for part in text.split("."))
