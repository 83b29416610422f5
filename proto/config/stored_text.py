"""The stored text of a task's or source's file: with its secrets encrypted in place, else encrypted as a whole.

The whole file is encrypted if a secret has a form that another text cannot replace: an alias, or a list of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from functools import partial

from pydantic import ValidationError

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.database import Database
from shardmerge.proto.config.document.masking import replaced_secrets
from shardmerge.proto.config.document.yaml_file import Document, Tree, compose, read
from shardmerge.proto.config.finding import KeyPath
from shardmerge.proto.config.secrets.endpoint_secrets import bound_to
from shardmerge.proto.config.secrets.variables import variable_name
from shardmerge.proto.config.security import CONTENTS, of_key
from shardmerge.proto.errors import ShardmergeError, config
from shardmerge.proto.secret import Binding, Bound, UnreadableSecret, has_key, is_encrypted, to_plain, to_stored

_BEFORE = re.compile(r"(?:[&!]\S*\s+)*")
"""Anchor and tag before a value."""
_BINDING = ("host", "port", "user", "security")
_SECRETS: tuple[KeyPath, ...] = (("password",), *(("security", key) for key in CONTENTS))

OF_TASK: KeyPath = ("target-database",)
OF_SOURCE: KeyPath = ("from",)


def stored_text(document: Document, text: str, path: KeyPath) -> str:
    """``text``, parsed as ``document``, as it is stored; ``path``: of the database in it. Unchanged without a key."""
    try:
        return encrypted_in_place(document, text, path)
    except ShardmergeError as error:
        if error.spec is not config.INVALID:
            raise
        return to_stored(text.removeprefix("\ufeff"), _whole(path))


def encrypted_in_place(
    document: Document, text: str, path: KeyPath, change: Callable[[str, Bound], str] = to_stored
) -> str:
    """A file's text as it is stored: the secrets of the database at ``path`` encrypted when this process has a key.

    ``change`` encrypts one of them. Raises ``config.INVALID`` for a secret in a form that another text cannot replace.
    """
    stored = text = text.removeprefix("\ufeff")
    if not has_key():
        return text
    expected = deepcopy(document.root)
    found = [here for here in (((*path, *key)) for key in _SECRETS) if _is_plain(document, here)]
    for here in sorted(found, key=lambda one: document.spans.get(one, (0, 0)), reverse=True):
        value, span = _at(document.root, here), document.spans.get(here)
        if not isinstance(value, str) or span is None:
            message = "cannot be encrypted in place: write it as one text"
            raise config.INVALID(finding=document.finding(here, message), more="")
        try:
            sealed, written = change(value, _bound(document, path, str(here[-1]))), text[span[0] : span[1]]
        except UnreadableSecret as why:
            raise why.spec(finding=document.finding(here, str(why)), more="") from None
        before = _BEFORE.match(written)
        end = written[len(written.rstrip()) :]
        stored = f'{stored[: span[0]]}{before[0] if before else ""}"{sealed}"{end}{stored[span[1] :]}'
        _set(expected, here, sealed)
    again, _ = compose(stored, document.file)
    if again is None or again.root != expected:
        message = "cannot be encrypted in place: write it in quotes, in a line of its own, without an alias"
        raise config.INVALID(finding=document.finding(found[0], message), more="")
    return stored


def _whole(path: KeyPath) -> Bound:
    """The binding of a file that is encrypted as a whole."""
    return partial(Binding, "file", tuple(map(str, path)))


def _bound(document: Document, path: KeyPath, key: str) -> Bound:
    """The binding of the secret at ``key`` of the database at ``path``: as in the record of the same file. In a file
    that is no longer valid, it is bound to an endpoint that does not exist."""
    tree = _at(document.root, path)
    parts = {name: value for name, value in tree.items() if name in _BINDING} if isinstance(tree, dict) else {}
    try:
        endpoint = Database.model_validate(parts).to_proto(None)
    except ValidationError:
        endpoint = pb.Endpoint()
    return bound_to(endpoint, of_key(key))


def _is_plain(document: Document, path: KeyPath) -> bool:
    """Whether the value is a secret itself, not a reference."""
    value = _at(document.root, path)
    return bool(value) and not (isinstance(value, str) and variable_name(value) is not None)


def _set(root: dict[str, Tree], path: KeyPath, value: str) -> None:
    for part in path[:-1]:
        inner = root[str(part)]
        assert isinstance(inner, dict)  # noqa: S101 - the path was read from this tree
        root = inner
    root[str(path[-1])] = value


def _at(root: Tree, path: KeyPath) -> Tree:
    for part in path:
        root = root.get(str(part)) if isinstance(root, dict) else None
    return root


def sealed_text(stored: str, path: KeyPath) -> str:
    """A stored text, encrypted with this process's key; a text that cannot be read stays as it is."""
    try:
        if is_encrypted(stored):
            return to_stored(stored, _whole(path))
        return stored_text(read(stored, ""), stored, path)
    except (ShardmergeError, UnreadableSecret):
        return stored


def file_text(stored: str, path: KeyPath, name: str) -> str:
    """A stored text without the encryption as a whole; secrets in it stay encrypted. ``name``: of the file, in errors.

    Raises ``config.SECRET_KEY_MISSING``, ``SECRET_UNREADABLE`` and ``SECRET_OF_ANOTHER_SERVER``.
    """
    return to_plain(stored, f"the file of {name}", _whole(path)) if is_encrypted(stored) else stored


def plain_text(stored: str, path: KeyPath, name: str) -> str:
    """The file with its secrets in plain text, in double quotes where they were encrypted in place.

    Raises what :func:`file_text` raises.
    """
    file = file_text(stored, path, name)
    where = f"a password in the file of {name}"
    return replaced_secrets(file, lambda key, text: to_plain(text, where, _bound(read(file, name), path, key)))
