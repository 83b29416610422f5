"""Passwords that are kept encrypted: AES-256-GCM under a key file (NIST SP 800-38D), as text ``enc:v1:<base64url>``.

The text holds the nonce (12 bytes), the ciphertext and the tag (16 bytes); the prefix is authenticated too. The nonce
is an HMAC of the plain text (as in SIV modes, RFC 5297), so that one password under one key always gives one text: two
files that differ in nothing are stored alike, and a nonce is used twice for the same text only.

What DM's own `dmctl encrypt` made is read too, where the key file is DM's: base64 of 16 random bytes, ``@`` and the
text by AES-256-CFB (tiflow, dm/pkg/encrypt). It has no tag, so that a wrong key gives other characters.

A process uses one key file, or none: see :func:`use`. A file may hold several keys, one a line: the first encrypts, all
decrypt. It is read again when it has changed, so that keys are replaced while everything runs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proto.durable import private_descriptor, private_folder, rewrite, sync_directory
from proto.errors import ErrorSpec, ShardmergeError, config
from proto.stamp import Stamp, stamp_of

PREFIX = "enc:v1:"
_FAMILY = "enc:"
_NONCE_BYTES = 12
_TAG_BYTES = 16
_KEY_BYTES = 32
_MOST_KEYS = 16
_DM_MARK = 16
"""Place of the ``@`` in a text of DM's, behind the initial vector."""


class Unreadable(Exception):
    """Why a text cannot be decrypted, without the text; ``spec``: the error that it makes."""

    def __init__(self, spec: ErrorSpec, reason: str) -> None:
        super().__init__(reason)
        self.spec = spec


@dataclass(frozen=True, slots=True)
class SecretKey:
    """The keys of a file. ``older``: those that only decrypt."""

    path: str
    key: bytes = field(repr=False)
    older: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def ids(self) -> tuple[str, ...]:
        """The identifier of each key, the first one first: an HMAC of a constant, which reveals nothing of the key."""
        return tuple(_derived(key, "id").hex() for key in (self.key, *self.older))

    def encrypt(self, plain: str) -> str:
        """The text that is kept in the place of ``plain``."""
        data = plain.encode()
        nonce = hmac.digest(_derived(self.key, "nonce"), data, hashlib.sha256)[:_NONCE_BYTES]
        sealed = AESGCM(_derived(self.key, "seal")).encrypt(nonce, data, PREFIX.encode())
        return PREFIX + base64.urlsafe_b64encode(nonce + sealed).decode()

    def decrypt(self, text: str) -> str:
        """The plain text. Raises :class:`Unreadable`."""
        content = _content(text)
        for key in (self.key, *self.older):
            try:
                opened = AESGCM(_derived(key, "seal")).decrypt(
                    content[:_NONCE_BYTES], content[_NONCE_BYTES:], PREFIX.encode()
                )
            except InvalidTag:
                continue
            return opened.decode()
        who = f"no key in {self.path} made it" if self.older else f"the key in {self.path} did not make it"
        reason = f"cannot be decrypted: {who}, or it was changed"
        raise Unreadable(config.SECRET_UNREADABLE, reason)

    def decrypt_dm(self, content: bytes) -> str:
        """The plain text of what DM made. Raises :class:`Unreadable` when no key gives text that can be printed."""
        for key in (self.key, *self.older):
            try:
                plain = _opened_cfb(key, content[:_DM_MARK], content[_DM_MARK + 1 :]).decode()
            except UnicodeDecodeError:
                continue
            if plain.isprintable():
                return plain
        reason = (
            f"has the form of what DM's `dmctl encrypt` makes, and no key in {self.path} made it: encrypt the password "
            "itself with `dmctl encrypt`"
        )
        raise Unreadable(config.SECRET_UNREADABLE, reason)


def _opened_cfb(key: bytes, vector: bytes, sealed: bytes) -> bytes:
    """AES in full-block CFB mode (NIST SP 800-38A), which libraries no longer offer."""
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - one block at a time, as CFB asks
    plain = b""
    while sealed:
        mask = block.update(vector)
        vector, sealed = sealed[: len(mask)], sealed[len(mask) :]
        plain += bytes(one ^ other for one, other in zip(vector, mask, strict=False))
    return plain


def _derived(key: bytes, use: str) -> bytes:
    return hmac.digest(key, f"shardmerge {PREFIX}{use}".encode(), hashlib.sha256)


def is_encrypted(text: str) -> bool:
    """Whether it says of itself that it is; of a later version too."""
    return text.startswith(_FAMILY)


def of_dm(text: str) -> bytes | None:
    """The bytes of a text of the form that DM's `dmctl encrypt` makes; None for any other."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return content if len(content) > _DM_MARK + 1 and content[_DM_MARK : _DM_MARK + 1] == b"@" else None


def load_key(path: str) -> SecretKey:
    """The keys of a file: 64 hexadecimal digits a line, as in DM's. Raises ``config.SECRET_KEY_UNUSABLE``."""
    keys = _keys_of(path)
    return SecretKey(path, keys[0], keys[1:])


def _keys_of(path: str) -> tuple[bytes, ...]:
    try:
        with Path(path).open("rb") as file:
            content = file.read(4096)
        keys = tuple(bytes.fromhex(line) for line in content.decode("ascii").split())
    except OSError as error:
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=error.strerror or "input/output error") from None
    except ValueError:
        keys = ()
    if not 0 < len(keys) <= _MOST_KEYS or any(len(key) != _KEY_BYTES for key in keys):
        reason = f"it does not hold {2 * _KEY_BYTES} hexadecimal digits, or up to {_MOST_KEYS} lines of so many"
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=reason)
    return keys


def new_key(path: str) -> None:
    """Make a key file that only this user can read; one that is there stays. Raises SECRET_KEY_UNUSABLE."""
    if not make_key(path):
        reason = "it is there already; what it encrypted could not be read without it"
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=reason)


def make_key(path: str) -> bool:
    """:func:`new_key`, with its folder; whether it was made: processes that make it at one time all find the same key,
    and never half of it. Raises SECRET_KEY_UNUSABLE."""
    place = Path(path)
    scratch = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    try:
        private_folder(place.parent)
        try:
            with os.fdopen(private_descriptor(scratch, os.O_WRONLY | os.O_EXCL), "w", encoding="ascii") as file:
                file.write(secrets.token_hex(_KEY_BYTES) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(scratch, place)
        except FileExistsError:
            return False
        finally:
            scratch.unlink(missing_ok=True)
        sync_directory(place.parent)
    except OSError as error:
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=error.strerror or "input/output error") from None
    return True


def add_key(path: str) -> None:
    """Put a new key behind those of a file: it only decrypts, until :func:`turn_keys`. Raises SECRET_KEY_UNUSABLE."""
    _write_keys(path, (*_keys_of(path), secrets.token_bytes(_KEY_BYTES)))


def turn_keys(path: str) -> None:
    """Put a file's last key before the others: from now on it encrypts. Raises SECRET_KEY_UNUSABLE."""
    keys = _keys_of(path)
    _write_keys(path, (keys[-1], *keys[:-1]))


def _write_keys(path: str, keys: tuple[bytes, ...]) -> None:
    if len(keys) > _MOST_KEYS:
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=f"it holds {_MOST_KEYS} keys: remove the last ones")
    try:
        rewrite(path, "".join(f"{key.hex()}\n" for key in keys))
    except OSError as error:
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=error.strerror or "input/output error") from None


class _Process:
    path = ""
    key: SecretKey | None = None
    seen: Stamp | None = None


def use(path: str, *, may_be_missing: bool = False) -> None:
    """Let this process encrypt and decrypt by the keys of a file; "": by none. Raises ``config.SECRET_KEY_UNUSABLE``.

    ``may_be_missing``: the file need not exist yet; it is read as soon as it exists. The key is global to the process,
    like its log: passwords are decrypted in code that opens connections, far from the code that reads the settings.
    """
    _Process.path, _Process.key, _Process.seen = path, None, None
    if path and not (may_be_missing and not Path(path).exists()):
        _Process.seen = stamp_of(path)
        _Process.key = load_key(path)


def _current() -> SecretKey | None:
    """The keys in use: the file's, as it is now. One that cannot be read leaves those that were read last."""
    if _Process.path:
        seen = stamp_of(_Process.path)
        if seen is not None and seen != _Process.seen:
            with suppress(ShardmergeError):
                _Process.key = load_key(_Process.path)
                _Process.seen = seen
    return _Process.key


def key_ids() -> tuple[str, ...]:
    """:attr:`SecretKey.ids` of the keys in use; none without a key."""
    key = _current()
    return () if key is None else key.ids


def kept(text: str) -> str:
    """``text`` as it is to be stored: encrypted when this process has a key. Raises :class:`Unreadable`."""
    key = _current()
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
    key = _current()
    if not is_encrypted(text):
        content = None if key is None else of_dm(text)
        return text if key is None or content is None else key.decrypt_dm(content)
    _content(text)
    if key is None:
        without = f"no key: there is none in {_Process.path}" if _Process.path else "no secret-key-path"
        raise Unreadable(config.SECRET_KEY_MISSING, f"is encrypted, and this process has {without}")
    return key.decrypt(text)


def has_key() -> bool:
    """Whether this process has a key."""
    return _current() is not None


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
