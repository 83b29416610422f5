"""What a client answers when a server asks who it is: which answers tell the password, and to whom they may go. Pure.

Sources: MySQL's "Authentication Plugins" and "Caching SHA-2 Pluggable Authentication" (sql/auth/sha2_password.cc),
MariaDB's "Authentication Plugin - ed25519" and "Authentication with Pluggable Authentication Modules" (``dialog``).

What may go to everybody is a proof that is made of the password and of the server's random text: nothing of it is of
use elsewhere, though who has it can try passwords on it. What tells the password itself goes to a server that has
proved by a certificate who it is, to no other.
"""

from __future__ import annotations

import enum
import importlib
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

NATIVE = "mysql_native_password"
CACHING = "caching_sha2_password"
SHA256 = "sha256_password"
ED25519 = "client_ed25519"
DIALOG = "dialog"

proofs: Any = importlib.import_module("pymysql._auth")  # the published stubs do not know it

_SALT_BYTES = 20
_ED25519_SALT_BYTES = 32
_ASK_KEY_SHA256 = b"\1"
_ASK_KEY_CACHING = b"\2"
_EMPTY = b"\0"

_UNPROVEN = "and nothing proves who that server is (no TLS whose certificate comes from a known ssl-ca)"


class Channel(enum.Enum):
    """What is known of who reads what is sent."""

    PLAIN = 1
    ENCRYPTED = 2  # by TLS, whoever the server is
    VERIFIED = 3  # by TLS, and the server's certificate comes from where it must


class Refused(Exception):
    """The server asks for what it may not get. ``args``: the method, and why."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(method, reason)
        self.method, self.reason = method, reason


class KeyWanted(Exception):
    """The server's cache lacks the account: a login without TLS, by the server's key, fills it."""


class Malformed(Exception):
    """The server sent what no login has. ``args``: what."""


class Unknown(Exception):
    """A method that this client does not have, or cannot use here. ``args``: the method, and why."""


@dataclass(frozen=True, slots=True)
class Login:
    """``retrieves_key``: the password may be encrypted by a key that the server itself sends."""

    password: bytes = field(repr=False)
    channel: Channel
    retrieves_key: bool

    @property
    def asks_for_key(self) -> bool:
        """Whether an answer that would tell the password asks for the server's key instead."""
        return bool(self.password) and self.retrieves_key and self.channel is Channel.PLAIN

    def opening(self, default: str, salt: bytes) -> tuple[str, bytes]:
        """The method that is tried first, and its answer; ``default``: the server's own choice, which is not yet that
        of the account: one that tells the password is not begun with."""
        method = default if default in (NATIVE, CACHING) else NATIVE
        return method, self.answer(method, salt)

    def answer(self, method: str, data: bytes) -> bytes:
        """To a server that asks for ``method``, with what it sent beside that.

        Raises :class:`Refused`, :class:`Unknown` and :class:`Malformed`.
        """
        salt = data.removesuffix(b"\0") if len(data) in (_SALT_BYTES + 1, _ED25519_SALT_BYTES + 1) else data
        match method:
            case "mysql_native_password":
                return proofs.scramble_native_password(self.password, _checked(salt, _SALT_BYTES))
            case "caching_sha2_password":
                return proofs.scramble_caching_sha2(self.password, _checked(salt, _SALT_BYTES))
            case "client_ed25519":
                return self._ed25519(_checked(salt, _ED25519_SALT_BYTES))
            case "sha256_password":
                return self._sha256()
            case "mysql_clear_password":
                return self._clear(method)
            case "dialog":
                return self.reply(data)
            case "mysql_old_password":
                raise Refused(method, "whose proof can be turned back into the password")
            case _:
                raise Unknown(method, "this client does not have it")

    def reply(self, prompt: bytes) -> bytes:
        """To a question of PAM's ``dialog``: one byte that says how it is asked, and the text."""
        if prompt[1:] not in (b"", b"Password: ", b"Password:"):
            raise Unknown(DIALOG, "it asks for more than a password")
        return self._clear(DIALOG)

    def full(self) -> bytes:
        """The answer of caching_sha2_password where the server's cache lacks the account.

        Raises :class:`KeyWanted` where it can be given over another connection only, and :class:`Refused`.
        """
        if self.channel is Channel.VERIFIED or not self.password:
            return self.password + _EMPTY
        if not self.retrieves_key:
            raise Refused(CACHING, f"as its cache lacks the account, {_UNPROVEN}")
        if self.channel is Channel.ENCRYPTED:
            raise KeyWanted
        return _ASK_KEY_CACHING

    def by_key(self, key: bytes, salt: bytes) -> bytes:
        """The password, encrypted by a key that the server sent. Raises :class:`Refused`, :class:`Malformed`."""
        if not self.retrieves_key or self.channel is not Channel.PLAIN:
            raise Refused(SHA256, _UNPROVEN)
        try:
            is_usable = isinstance(serialization.load_pem_public_key(key), RSAPublicKey)
        except (ValueError, UnsupportedAlgorithm):
            is_usable = False
        if not is_usable:
            raise Malformed("what it sent is no public key")
        try:
            return proofs.sha2_rsa_encrypt(self.password, _checked(salt, _SALT_BYTES), key)
        except ValueError:
            raise Malformed("its public key is too short for the password") from None

    def _sha256(self) -> bytes:
        if not self.password or self.channel is Channel.VERIFIED:
            return self.password + _EMPTY
        if not self.retrieves_key:
            raise Refused(SHA256, _UNPROVEN)
        if self.channel is Channel.ENCRYPTED:
            raise Refused(SHA256, f"by TLS in clear text, {_UNPROVEN}; a key is sent without TLS alone")
        return _ASK_KEY_SHA256

    def _clear(self, method: str) -> bytes:
        if self.password and self.channel is not Channel.VERIFIED:
            raise Refused(method, f"which is clear text, {_UNPROVEN}")
        return self.password + _EMPTY

    def _ed25519(self, salt: bytes) -> bytes:
        try:
            return proofs.ed25519_password(self.password, salt)
        except RuntimeError as error:
            raise Unknown(ED25519, str(error)) from None


def _checked(salt: bytes, size: int) -> bytes:
    if len(salt) != size:
        raise Malformed(f"a random text of {len(salt)} bytes, not {size}")
    return salt
