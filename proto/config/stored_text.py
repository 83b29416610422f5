"""A task's or source's file as it is stored: with its secrets encrypted in their places, else encrypted as a whole.

The whole file is encrypted if a secret is written in a form that no other text can replace: an alias, or a list of
bytes.
"""

from __future__ import annotations

from proto.config.database import kept_text
from proto.config.finding import KeyPath
from proto.config.masking import replaced_secrets
from proto.config.yamlfile import Document, read
from proto.errors import ShardmergeError, config
from proto.secret import Unreadable, is_encrypted, kept, revealed

OF_TASK: KeyPath = ("target-database",)
OF_SOURCE: KeyPath = ("from",)


def stored_text(document: Document, text: str, path: KeyPath) -> str:
    """``text``, which ``document`` is, as it is stored; ``path``: of the database in it. As it is without a key."""
    try:
        return kept_text(document, text, path)
    except ShardmergeError as error:
        if error.spec is not config.INVALID:
            raise
        return kept(text.removeprefix("\ufeff"))


def sealed_text(stored: str, path: KeyPath) -> str:
    """What is stored already, encrypted by this process's key; what cannot be read stays as it is."""
    try:
        return kept(stored) if is_encrypted(stored) else stored_text(read(stored, ""), stored, path)
    except (ShardmergeError, Unreadable):
        return stored


def file_text(stored: str, name: str) -> str:
    """What is stored, no longer encrypted as a whole; secrets in it stay encrypted. ``name``: of the file, in errors.

    Raises ``config.SECRET_KEY_MISSING`` and ``SECRET_UNREADABLE``.
    """
    return revealed(stored, f"the file of {name}") if is_encrypted(stored) else stored


def plain_text(stored: str, name: str) -> str:
    """The file with its secrets in plain text, in double quotes where they were encrypted in their place.

    Raises what :func:`file_text` raises.
    """
    return replaced_secrets(file_text(stored, name), lambda text: revealed(text, f"a password in the file of {name}"))
