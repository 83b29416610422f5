"""Encrypts and decrypts stored passwords: AES-256-GCM under a key file (NIST SP 800-38D).

What is stored is bound: ``enc:v2:<base64url>`` opens only with the same :class:`Binding`. A copy of it in the record of
another server is useless. It holds the mark of its key (8 bytes), the nonce (12 bytes), the ciphertext and the tag (16
bytes). ``enc:v1:<base64url>``, without a mark, is bound to nothing: `dmctl encrypt` makes it, which does not know the
server, and an earlier version stored it.

The nonce is an HMAC of the plain text and the binding (as in SIV modes, RFC 5297), so that one password under one key
always gives one text: two equal files are stored as equal texts, and a nonce is used again only for the same text.

The output of DM's own `dmctl encrypt` is read too, with DM's key file: base64 of 16 random bytes, ``@`` and the text by
AES-256-CFB (tiflow, dm/pkg/encrypt). It has no tag, so that a wrong key gives other characters.

A process uses one key file, or none: see :func:`use`. A file may hold several keys, one per line: the first encrypts,
all decrypt. It is read again when it has changed, so that keys can be replaced at run time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shardmerge.proto.errors import ErrorSpec, ShardmergeError, config
from shardmerge.proto.files.durable_file import private_descriptor, private_folder, rewrite, sync_directory
from shardmerge.proto.files.file_stamp import Stamp, stamp_of

PREFIX = "enc:v1:"
BOUND_PREFIX = "enc:v2:"
READS_BOUND = "# reads secrets that are bound to a server\n"
"""This line is in the settings that a daemon publishes; those of an earlier version do not have it."""
_FAMILY = "enc:"
_MARK_BYTES = 8
_NONCE_BYTES = 12
_TAG_BYTES = 16
_KEY_BYTES = 32
_MAX_KEYS = 16
_DM_MARK = 16
"""Offset of the ``@`` in a text of DM's, after the initial vector."""


class UnreadableSecret(Exception):
    """Why a text cannot be decrypted, without the text; ``spec``: the error to raise for it."""

    def __init__(self, spec: ErrorSpec, reason: str) -> None:
        super().__init__(reason)
        self.spec = spec


@dataclass(frozen=True, slots=True)
class Binding:
    """What a stored text is, and what it belongs to."""

    what: str
    parts: tuple[str, ...]

    @property
    def data(self) -> bytes:
        """An encoding that no other binding has: the length is before each part."""
        parts = [part.encode() for part in (BOUND_PREFIX, self.what, *self.parts)]
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


Bound = Callable[[], Binding]
"""The binding of a text, which is not needed for every text. Raises :class:`UnreadableSecret`."""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """The keys of a file. ``older``: those that only decrypt."""

    path: str
    key: bytes = field(repr=False)
    older: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def ids(self) -> tuple[str, ...]:
        """The identifier of each key, in order: an HMAC of a constant, which reveals nothing of the key."""
        return tuple(_derived(key, "id").hex() for key in (self.key, *self.older))

    @property
    def call_keys(self) -> dict[str, bytes]:
        """By identifier, the keys that prove calls (proto/rpc/caller_proof.py). They reveal nothing of the keys."""
        return {_derived(key, "id").hex(): _derived(key, "call") for key in (self.key, *self.older)}

    @property
    def metrics_tokens(self) -> tuple[str, ...]:
        """With each key, the token of a caller that reads the metrics. It reveals nothing of the key."""
        return tuple(_derived(key, "metrics").hex() for key in (self.key, *self.older))

    def seal(self, plain: str, binding: Binding) -> str:
        """The encrypted text of ``plain``, which only ``binding`` opens."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        data, bound = plain.encode(), binding.data
        whole = len(bound).to_bytes(8, "big") + bound + data
        nonce = hmac.digest(_derived(self.key, "bound nonce"), whole, hashlib.sha256)[:_NONCE_BYTES]
        sealed = AESGCM(_derived(self.key, "bound seal")).encrypt(nonce, data, bound)
        return BOUND_PREFIX + base64.urlsafe_b64encode(_mark(self.key) + nonce + sealed).decode()

    def open(self, text: str, binding: Binding) -> str:
        """The plain text of what :meth:`seal` made. Raises :class:`UnreadableSecret`."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        content = _content(text)
        mark, sealed = content[:_MARK_BYTES], content[_MARK_BYTES:]
        for key in (self.key, *self.older):
            if _mark(key) != mark:
                continue
            try:
                opened = AESGCM(_derived(key, "bound seal")).decrypt(
                    sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], binding.data
                )
            except InvalidTag:
                reason = "cannot be decrypted: it was stored for another account, address or TLS setting"
                raise UnreadableSecret(config.SECRET_OF_ANOTHER_SERVER, reason) from None
            return opened.decode()
        raise self._not_mine()

    def encrypt(self, plain: str) -> str:
        """The encrypted text of ``plain``, bound to nothing."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 0.1 s of every start otherwise

        data = plain.encode()
        nonce = hmac.digest(_derived(self.key, "nonce"), data, hashlib.sha256)[:_NONCE_BYTES]
        sealed = AESGCM(_derived(self.key, "seal")).encrypt(nonce, data, PREFIX.encode())
        return PREFIX + base64.urlsafe_b64encode(nonce + sealed).decode()

    def decrypt(self, text: str) -> str:
        """The plain text of what :meth:`encrypt` made. Raises :class:`UnreadableSecret`."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        content = _content(text)
        for key in (self.key, *self.older):
            try:
                opened = AESGCM(_derived(key, "seal")).decrypt(
                    content[:_NONCE_BYTES], content[_NONCE_BYTES:], PREFIX.encode()
                )
            except InvalidTag:
                continue
            return opened.decode()
        raise self._not_mine()

    def _not_mine(self) -> UnreadableSecret:
        who = f"no key in {self.path} made it" if self.older else f"the key in {self.path} did not make it"
        return UnreadableSecret(config.SECRET_UNREADABLE, f"cannot be decrypted: {who}, or it was changed")

    def decrypt_dm(self, content: bytes) -> str:
        """The plain text of an output of DM. Raises :class:`UnreadableSecret` when no key gives text that can be
        printed."""
        for key in (self.key, *self.older):
            try:
                plain = _decrypt_cfb(key, content[:_DM_MARK], content[_DM_MARK + 1 :]).decode()
            except UnicodeDecodeError:
                continue
            if plain.isprintable():
                return plain
        reason = (
            f"has the form of an output of DM's `dmctl encrypt`, and no key in {self.path} made it: encrypt the "
            f"password "
            "itself with `dmctl encrypt`"
        )
        raise UnreadableSecret(config.SECRET_UNREADABLE, reason)


def _decrypt_cfb(key: bytes, vector: bytes, sealed: bytes) -> bytes:
    """AES in full-block CFB mode (NIST SP 800-38A), which libraries no longer offer."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - one block at a time, as CFB asks
    plain = b""
    while sealed:
        mask = block.update(vector)
        vector, sealed = sealed[: len(mask)], sealed[len(mask) :]
        plain += bytes(one ^ other for one, other in zip(vector, mask, strict=False))
    return plain


def _derived(key: bytes, use: str) -> bytes:
    return hmac.digest(key, f"shardmerge {PREFIX}{use}".encode(), hashlib.sha256)


def _mark(key: bytes) -> bytes:
    """The beginning of a key's identifier."""
    return _derived(key, "id")[:_MARK_BYTES]


def is_encrypted(text: str) -> bool:
    """Whether the text is marked as encrypted, by this or a later version."""
    return text.startswith(_FAMILY)


def holds_encrypted(text: str) -> bool:
    """Whether an encrypted text is somewhere in ``text``."""
    return PREFIX in text or BOUND_PREFIX in text


def dm_content(text: str) -> bytes | None:
    """The bytes of a text that has the form of DM's `dmctl encrypt`; None for any other text."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return content if len(content) > _DM_MARK + 1 and content[_DM_MARK : _DM_MARK + 1] == b"@" else None


def load_key(path: str) -> SecretKey:
    """The keys of a file: 64 hexadecimal digits per line, as in DM's. Raises ``config.SECRET_KEY_UNUSABLE``."""
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
    if not 0 < len(keys) <= _MAX_KEYS or any(len(key) != _KEY_BYTES for key in keys):
        reason = f"it does not hold {2 * _KEY_BYTES} hexadecimal digits, or up to {_MAX_KEYS} such lines"
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=reason)
    return keys


def new_key(path: str) -> None:
    """Create a key file that only this user can read; an existing one is kept. Raises SECRET_KEY_UNUSABLE."""
    if not make_key(path):
        reason = "it exists already; what it encrypted could not be read without it"
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
    """Append a new key to a file: it only decrypts, until :func:`rotate_keys`. Raises SECRET_KEY_UNUSABLE."""
    _write_keys(path, (*_keys_of(path), secrets.token_bytes(_KEY_BYTES)))


def rotate_keys(path: str) -> None:
    """Move a file's last key to the front: from now on it encrypts. Raises SECRET_KEY_UNUSABLE."""
    keys = _keys_of(path)
    _write_keys(path, (keys[-1], *keys[:-1]))


def _write_keys(path: str, keys: tuple[bytes, ...]) -> None:
    if len(keys) > _MAX_KEYS:
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=f"it holds {_MAX_KEYS} keys: remove the last ones")
    try:
        rewrite(path, "".join(f"{key.hex()}\n" for key in keys))
    except OSError as error:
        raise config.SECRET_KEY_UNUSABLE(path=path, reason=error.strerror or "input/output error") from None


class _Process:
    path = ""
    key: SecretKey | None = None
    seen: Stamp | None = None


def use(path: str, *, may_be_missing: bool = False) -> None:
    """Let this process encrypt and decrypt with the keys of a file; "": with none. Raises
    ``config.SECRET_KEY_UNUSABLE``.

    ``may_be_missing``: the file need not exist yet; it is read as soon as it exists. The key is global to the process,
    like its log: passwords are decrypted in code that opens connections, far from the code that reads the settings.
    """
    _Process.path, _Process.key, _Process.seen = path, None, None
    if path and not (may_be_missing and not Path(path).exists()):
        _Process.seen = stamp_of(path)
        _Process.key = load_key(path)


def _current() -> SecretKey | None:
    """The keys in use: those of the file now. If it cannot be read, the keys that were read last stay in use."""
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


def call_keys() -> dict[str, bytes]:
    """:attr:`SecretKey.call_keys` of the keys in use; none without a key."""
    key = _current()
    return {} if key is None else key.call_keys


def metrics_tokens() -> tuple[str, ...]:
    """:attr:`SecretKey.metrics_tokens` of the keys in use; none without a key."""
    key = _current()
    return () if key is None else key.metrics_tokens


def to_stored(text: str, bound: Bound) -> str:
    """``text`` as it is stored: encrypted when this process has a key. Raises :class:`UnreadableSecret`."""
    key = _current()
    return key.seal(read_secret(text, bound), bound()) if key is not None and text else text


def to_unbound(text: str, bound: Bound) -> str:
    """``text`` for a file of the user, whose server may still change. Raises :class:`UnreadableSecret`."""
    key = _current()
    return key.encrypt(read_secret(text, bound)) if key is not None and text else text


def to_plain(text: str, where: str, bound: Bound) -> str:
    """The plain text of ``text``, which may be plain already; ``where`` names the value in errors.

    Raises ``config.SECRET_KEY_MISSING``, ``SECRET_UNREADABLE`` and ``SECRET_OF_ANOTHER_SERVER``.
    """
    try:
        return read_secret(text, bound)
    except UnreadableSecret as error:
        raise error.spec(finding=f"{where}: {error}", more="") from None


def problem(text: str, bound: Bound, *, form_only: bool) -> UnreadableSecret | None:
    """Why an encrypted text cannot be read by this process; ``form_only``: without a key check only its form."""
    try:
        if is_encrypted(text) and form_only and not has_key():
            _content(text)
        else:
            read_secret(text, bound)
    except UnreadableSecret as error:
        return error
    return None


def read_secret(text: str, bound: Bound) -> str:
    """The plain text of ``text``, which may be plain already. Raises :class:`UnreadableSecret`."""
    key = _current()
    if not is_encrypted(text):
        content = None if key is None else dm_content(text)
        return text if key is None or content is None else key.decrypt_dm(content)
    _content(text)
    if key is None:
        without = f"no key: there is none in {_Process.path}" if _Process.path else "no secret-key-path"
        raise UnreadableSecret(config.SECRET_KEY_MISSING, f"is encrypted, and this process has {without}")
    return key.open(text, bound()) if text.startswith(BOUND_PREFIX) else key.decrypt(text)


def has_key() -> bool:
    """Whether this process has a key."""
    return _current() is not None


def _content(text: str) -> bytes:
    prefix = next((one for one in (PREFIX, BOUND_PREFIX) if text.startswith(one)), None)
    if prefix is None:
        reason = f"cannot be decrypted: it is of another version than {PREFIX} and {BOUND_PREFIX}"
        raise UnreadableSecret(config.SECRET_UNREADABLE, reason)
    try:
        content = base64.b64decode(text.removeprefix(prefix), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if len(content) < _NONCE_BYTES + _TAG_BYTES + (_MARK_BYTES if prefix == BOUND_PREFIX else 0):
        raise UnreadableSecret(config.SECRET_UNREADABLE, "cannot be decrypted: it is incomplete")
    return content
