"""A configuration for people who must not see its secrets: parsed, masked by its keys, and written anew. Pure.

Comments are not written: a password in a comment has no key by which it could be found.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import cast

from ruamel.yaml import YAML

from shardmerge.proto.config.document.masking import MASK, is_secret_key, is_secret_name, masked
from shardmerge.proto.config.document.yaml_file import compose

_USER_IN_URL = re.compile(
    # A password may have "@" and "/" in it, unlike in a valid URL. What follows a port is a path.
    # The bounds keep the time linear.
    r"://(?:[^/\s\"']{1,400}@|[^/\s:@\"']{0,100}:(?!\d{1,5}(?:[/?#]|\Z))[^\s@\"']{1,400}@)"
)
_ASSIGNED = re.compile(
    r"((?:password|passwd|passphrase|secret|token|credential|access_key)[\w.-]{0,60}=)[^\s&;,\"'}\]]+", re.IGNORECASE
)
_PEM = re.compile(r"-----BEGIN [^-]+-----.*?(?:-----END [^-]+-----|\Z)", re.DOTALL)
_ENCRYPTED = re.compile(r"enc:v\d+:[A-Za-z0-9_=-]+")
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_WIDTH = 4096
UNREADABLE = "# left out: the text is not a valid configuration, so its secrets cannot be found\n"


def redacted(text: str) -> str:
    """The configuration as YAML without comments, with ``******`` instead of each secret. A reference to a variable of
    the environment stays."""
    document, _ = compose(text, "")
    if document is None:
        return UNREADABLE
    # What compose() accepts has no tags, no cycles and a bounded size. Other than its tree, this one has numbers and
    # booleans. The aliases of a password are masked first: here they would be values of other keys.
    tree: object = YAML(typ="safe", pure=True).load(masked(text.removeprefix("\ufeff")))
    written = io.StringIO()
    writer = YAML(typ="rt")
    writer.width = _WIDTH
    writer.dump(_masked(tree), written)
    return written.getvalue()


def scrubbed(text: str) -> str:
    """``text`` without what has the form of a secret wherever it is: an encrypted secret, the content of a key or
    certificate, the user in a URL, what is assigned to a name of a secret. The second check after the keys."""
    found = _ENCRYPTED.sub(MASK, _PEM.sub(MASK, text))
    return _ASSIGNED.sub(rf"\1{MASK}", _USER_IN_URL.sub(f"://{MASK}@", found))


def _masked(value: object, *, is_secret: bool = False) -> object:
    """A copy; ``is_secret``: the key of ``value`` indicates a secret, so that everything in it is one."""
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {key: _masked(inner, is_secret=is_secret or _names_secret(key, inner)) for key, inner in items}
    if isinstance(value, list):
        return [_masked(inner, is_secret=is_secret) for inner in cast("list[object]", value)]
    if not is_secret or value is None:
        return scrubbed(value) if isinstance(value, str) else value
    is_public = isinstance(value, str) and (not value or _REFERENCE.fullmatch(value) is not None)
    return value if is_public else MASK


def _names_secret(key: object, value: object) -> bool:
    """Whether a key holds a secret. Names of users' rules, which have mappings, may contain any word."""
    name = str(key)
    return is_secret_key(name) or (is_secret_name(name) and not isinstance(value, Mapping))
