"""Passwords that are kept encrypted: AES-256-GCM under a key file (NIST SP 800-38D), as text ``enc:v1:<base64url>``.

The text holds the nonce (12 bytes), the ciphertext and the tag (16 bytes); the prefix is authenticated too. The nonce
is an HMAC of the plain text (as in SIV modes, RFC 5297), so that one password under one key always gives one text: two
files that differ in nothing are stored alike, and a nonce is used twice for the same text only.

A process uses one key, or none: see :func:`use`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proto.errors import ErrorSpec, config

PREFIX = "enc:v1:"
_FAMILY = "enc:"
_NONCE_BYTES = 12
_TAG_BYTES = 16
_KEY_BYTES = 32


class Unreadable(Exception):
    """Why a text cannot be decrypted, without the text; ``spec``: the error that it makes."""

    def __init__(self, spec: ErrorSpec, reason: str) -> None:
        super().__init__(reason)
        self.spec = spec


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key and the file that it came from."""

    path: str
    key: bytes = field(repr=False)

    def encrypt(self, plain: str) -> str:
        """The text that is kept in the place of ``plain``."""
        data = plain.encode()
        nonce = hmac.digest(self._derived("nonce"), data, hashlib.sha256)[:_NONCE_BYTES]
        sealed = AESGCM(self._derived("seal")).encrypt(nonce, data, PREFIX.encode())
        return PREFIX + base64.urlsafe_b64encode(nonce + sealed).decode()

    def decrypt(self, text: str) -> str:
        """The plain text. Raises :class:`Unreadable`."""
        content = _content(text)
        try:
            opened = AESGCM(self._derived("seal")).decrypt(
                content[:_NONCE_BYTES], content[_NONCE_BYTES:], PREFIX.encode()
            )
        except InvalidTag:
            reason = f"cannot be decrypted: the key in {self.path} did not make it, or it was changed"
            raise Unreadable(config.SECRET_UNREADABLE, reason) from None
        return opened.decode()

    def _derived(self, use: str) -> bytes:
        return hmac.digest(self.key, f"shardmerge {PREFIX}{use}".encode(), hashlib.sha256)


def is_encrypted(text: str) -> bool:
    """Whether it says of itself that it is; of a later version too."""
    return text.startswith(_FAMILY)


def load_key(path: str) -> SecretKey:
    """The key of a file: 64 hexadecimal digits, as in DM's. Raises ``config.SECRET_KEY_UNUSABLE``."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(1024)
        key = bytes.fromhex(content.decode("ascii").strip())
    except OSError as error:
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=error.strerror or "input/output error") from None
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=f"it does not hold {2 * _KEY_BYTES} hexadecimal digits")
    return SecretKey(path, key)


def new_key(path: str) -> None:
    """Make a key file that only this user can read; one that is there stays. Raises SECRET_KEY_UNUSABLE."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        reason = "it is there already; what it encrypted could not be read without it"
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=reason) from None
    except OSError as error:
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=error.strerror or "input/output error") from None


class _Process:
    key: SecretKey | None = None


def use(path: str) -> None:
    """Let this process encrypt and decrypt by the key of a file; "": by none. Raises ``config.SECRET_KEY_UNUSABLE``.

    Of the whole process, like its log: a password is decrypted where a connection is made, far from where the
    daemon's own file is read.
    """
    _Process.key = load_key(path) if path else None


def kept(text: str) -> str:
    """``text`` as it is to be stored: encrypted when this process has a key. Raises :class:`Unreadable`."""
    key = _Process.key
    return key.encrypt(_plain(text)) if key is not None and text else text


def revealed(text: str, where: str) -> str:
    """The plain text of ``text``, which may be that already; ``where`` names the value in errors.

    Raises ``config.SECRET_KEY_MISSING`` and ``config.SECRET_UNREADABLE``.
    """
    try:
        return _plain(text)
    except Unreadable as error:
        raise error.spec(finding=f"{where}: {error}", more="") from None


def problem(text: str, *, form_only: bool) -> Unreadable | None:
    """Why an encrypted text cannot be read by this process; ``form_only``: without a key look at its form alone."""
    try:
        if is_encrypted(text) and form_only and not has_key():
            _content(text)
        else:
            _plain(text)
    except Unreadable as error:
        return error
    return None


def _plain(text: str) -> str:
    if not is_encrypted(text):
        return text
    _content(text)
    if _Process.key is None:
        raise Unreadable(config.SECRET_KEY_MISSING, "is encrypted, and this process has no secret-key-path")
    return _Process.key.decrypt(text)


def has_key() -> bool:
    """Whether this process has a key."""
    return _Process.key is not None


def _content(text: str) -> bytes:
    if not text.startswith(PREFIX):
        raise Unreadable(config.SECRET_UNREADABLE, f"cannot be decrypted: it is of another version than {PREFIX}")
    try:
        content = base64.b64decode(text.removeprefix(PREFIX), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if len(content) < _NONCE_BYTES + _TAG_BYTES:
        raise Unreadable(config.SECRET_UNREADABLE, "cannot be decrypted: it is not whole")
    return content
