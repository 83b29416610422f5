"""What a bundle consists of: files with a description each, and what could not be collected. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from urllib.parse import quote

from shardmerge.ctl.as_json import Json
from shardmerge.proto.config.document.redacted import scrubbed
from shardmerge.proto.diagnostics.row_values import without_values
from shardmerge.proto.errors import ShardmergeError

_MOST_NAME_CHARS = 150


@dataclass(frozen=True, slots=True)
class BundleFile:
    """``name``: its path within the bundle; ``about``: what it is, for the index."""

    name: str
    text: str
    about: str


@dataclass(frozen=True, slots=True)
class NotCollected:
    """``what``: a phrase; ``error``: why, with its code; ``workaround``: what to do."""

    what: str
    error: str
    workaround: str

    @classmethod
    def of(cls, what: str, error: ShardmergeError) -> NotCollected:
        shown = without_values(error)
        return cls(what, str(shown), shown.workaround)


Item = BundleFile | NotCollected


def json_file(name: str, value: Json, about: str) -> BundleFile:
    """A file of indented JSON."""
    return BundleFile(name, scrubbed(json.dumps(value, ensure_ascii=False, indent=2)) + "\n", about)


def safe_name(name: str) -> str:
    """A name of the cluster as the name of one file: percent-encoded, never hidden, never too long."""
    plain = quote(name, safe=" ").replace("~", "%7E")
    if plain.startswith("."):
        plain = f"%2E{plain[1:]}"
    if len(plain) <= _MOST_NAME_CHARS:
        return plain or "%"
    return f"{plain[: _MOST_NAME_CHARS - 17]}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"
