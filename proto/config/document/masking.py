"""Masks the secrets in a configuration's text.

DM shows a password as ``******`` (docs: "Manage Upstream Database Configurations", ``config source``).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

MASK = "******"

_SECRET_KEYS = frozenset(
    {"password", *(f"ssl-{part}-{form}" for part in ("ca", "cert", "key") for form in ("bytes", "base64"))}
)
# As Spark hides its own settings (docs: "Configuration", spark.redaction.regex), and a few further words.
_SECRET_NAME = re.compile(
    r"secret|password|passwd|passphrase|token|(?:access|private)[._-]?key|credential", re.IGNORECASE
)
_PATHS = frozenset({"secret-key-path"})
"""Names that indicate secrets, and names of values that only locate one."""
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def masked(text: str) -> str:
    """A valid task or source file with ``******`` instead of each password; everything else unchanged.

    Unchanged are an empty password, and one that only names an environment variable. An anchor at a password is masked
    wherever it is used. Comments are not searched.
    """
    return _replaced(text, [(node, MASK) for _, node in _secrets(text)])


def replaced_secrets(text: str, change: Callable[[str, str], str]) -> str:
    """A valid task or source file with ``change(key, secret)`` instead of each encrypted secret; everything else
    unchanged."""
    from shardmerge.proto.secret import is_encrypted  # importing cryptography takes 0.1 s: only when needed

    return _replaced(
        text, [(node, change(key, node.value)) for key, node in _secrets(text) if is_encrypted(node.value)]
    )


def _replaced(text: str, secrets: Iterable[tuple[ScalarNode, str]]) -> str:
    shown = text
    for node, replacement in sorted(secrets, key=lambda one: one[0].start_mark.index, reverse=True):
        start, end = node.start_mark.index, node.end_mark.index
        written = text[start:end]
        # A block scalar (| or >) ends after its last line break.
        tail = written[len(written.rstrip("\r\n")) :] if written[:1] in "|>" else ""
        anchor = f"&{node.anchor} " if node.anchor and written.startswith("&") else ""
        shown = f"{shown[:start]}{anchor}{_quoted(replacement)}{tail}{shown[end:]}"
    return shown


def _quoted(text: str) -> str:
    """A double-quoted scalar (YAML 1.2, 7.3.1)."""
    return '"' + "".join(_escaped(mark) for mark in text) + '"'


def _escaped(mark: str) -> str:
    if mark in '"\\':
        return f"\\{mark}"
    if mark.isprintable():
        return mark
    code = ord(mark)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def with_password(text: str, password: str) -> str:
    """A valid source file with this password of the server, also if it has none; everything else unchanged."""
    root = YAML(typ="safe", pure=True).compose(text)
    server = _value_of(root, "from")
    if not isinstance(server, MappingNode):
        return text
    known = _value_of(server, "password")
    if isinstance(known, ScalarNode):
        return _replaced(text, [(known, password)])
    entries: list[tuple[Node, Node]] = server.value
    if not entries:
        return text
    first = entries[0][0].start_mark
    tail = ", " if server.flow_style else f"\n{' ' * first.column}"
    return f"{text[: first.index]}password: {_quoted(password)}{tail}{text[first.index :]}"


def _value_of(node: Node | None, key: str) -> Node | None:
    """The value of a key in a mapping; None: it has no such key."""
    entries: list[tuple[Node, Node]] = node.value if isinstance(node, MappingNode) else []
    return next((value for name, value in entries if isinstance(name, ScalarNode) and name.value == key), None)


def holds_secrets(text: str) -> bool:
    """Whether a valid file has a password in plain text: neither encrypted nor a reference."""
    from shardmerge.proto.secret import is_encrypted  # importing cryptography takes 0.1 s: only when needed

    return any(not is_encrypted(node.value) for _, node in _secrets(text))


def _secrets(text: str) -> tuple[tuple[str, ScalarNode], ...]:
    """Each secret with its key."""
    root = YAML(typ="safe", pure=True).compose(text)
    found = {id(node): (key, node) for key, node in _secret_nodes(root, set())} if root is not None else {}
    return tuple((key, node) for key, node in found.values() if node.value and not _REFERENCE.fullmatch(node.value))


def _secret_nodes(node: Node, seen: set[int]) -> Iterator[tuple[str, ScalarNode]]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, SequenceNode):
        for item in node.value:
            yield from _secret_nodes(item, seen)
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value in _SECRET_KEYS:
                # DM writes bytes as a list of numbers.
                listed: list[Node] = value.value if isinstance(value, SequenceNode) else [value]
                yield from ((str(key.value), item) for item in listed if isinstance(item, ScalarNode))
            yield from _secret_nodes(value, seen)


def is_secret_key(key: str) -> bool:
    """Whether the key of a task or source file holds a secret."""
    return key in _SECRET_KEYS


def is_secret_name(name: str) -> bool:
    """Whether the name of a setting or field indicates a secret."""
    return name not in _PATHS and _SECRET_NAME.search(name) is not None


def without_secrets(settings: Mapping[str, Any]) -> str:
    """Settings as YAML; the value of a key whose name indicates a secret is ``******``. So is, as in Spark, the value
    of a setting of Spark with such a name in it: ``-Djavax.net.ssl.keyStorePassword=…``."""
    text = io.StringIO()
    YAML(typ="rt").dump(_hidden(settings), text)
    return text.getvalue()


def _hidden(value: object) -> object:
    if isinstance(value, Mapping):
        return {
            key: MASK if inner and (is_secret_name(key) or _is_secret_of_spark(key, inner)) else _hidden(inner)
            for key, inner in cast("Mapping[str, object]", value).items()
        }
    return value


def _is_secret_of_spark(key: str, value: object) -> bool:
    return key.startswith("spark.") and isinstance(value, str) and _SECRET_NAME.search(value) is not None
