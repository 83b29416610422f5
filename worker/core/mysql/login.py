"""The client side of the authentication methods, and the rule that limits the answers a server may get. Pure.

Some answers are a hash of the password and of the server's random challenge. Every server may get them: they cannot be
used for another login, but the recipient can test guessed passwords against them. Other answers contain the password
itself. Only a server whose certificate was verified gets those.

Sources: MySQL's "Authentication Plugins" and "Caching SHA-2 Pluggable Authentication" (sql/auth/sha2_password.cc),
MariaDB's "Authentication Plugin - ed25519" and "Authentication with Pluggable Authentication Modules" (``dialog``).
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

proofs: Any = importlib.import_module("pymysql._auth")  # the published stubs lack this module

_SALT_BYTES = 20
_ED25519_SALT_BYTES = 32
_REQUEST_KEY_SHA256 = b"\1"
_REQUEST_KEY_CACHING = b"\2"
_EMPTY = b"\0"

_UNVERIFIED = "the server's certificate was not verified (this needs TLS and ssl-ca)"


class Channel(enum.Enum):
    """How the connection is protected."""

    PLAIN = 1  # not encrypted
    ENCRYPTED = 2  # TLS without certificate verification
    VERIFIED = 3  # TLS, and the server's certificate was verified


class Refused(Exception):
    """The server requests an answer that it may not get. ``args``: the method and the reason."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(method, reason)
        self.method, self.reason = method, reason


class PublicKeyLoginNeeded(Exception):
    """The account is not in the server's cache. A login without TLS, with the server's public key, puts it there."""


class Malformed(Exception):
    """The server sent data that violates the authentication protocol. ``args``: the reason."""


class Unknown(Exception):
    """The client does not support the method, or cannot use it here. ``args``: the method and the reason."""


@dataclass(frozen=True, slots=True)
class Login:
    """One login. ``retrieves_key``: the password may be encrypted with a public key that the server itself sends."""

    password: bytes = field(repr=False)
    channel: Channel
    retrieves_key: bool

    @property
    def requests_public_key(self) -> bool:
        """Whether the client requests the server's public key instead of sending the password in clear text."""
        return bool(self.password) and self.retrieves_key and self.channel is Channel.PLAIN

    def opening(self, default: str, salt: bytes) -> tuple[str, bytes]:
        """The first method and its answer. ``default``: the server's default method, which may differ from the
        account's method. A method that sends the password itself is never the first one."""
        method = default if default in (NATIVE, CACHING) else NATIVE
        return method, self.answer(method, salt)

    def answer(self, method: str, data: bytes) -> bytes:
        """The answer for ``method``. ``data``: what the server sent with the method's name, such as its challenge.

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
                raise Refused(method, "the password can be computed from an answer of this method")
            case _:
                raise Unknown(method, "this client does not support it")

    def reply(self, prompt: bytes) -> bytes:
        """The answer to a prompt of PAM's ``dialog``. ``prompt``: one byte with the kind of prompt, then its text."""
        if prompt[1:] not in (b"", b"Password: ", b"Password:"):
            raise Unknown(DIALOG, "the server requests more than a password")
        return self._clear(DIALOG)

    def full_authentication(self) -> bytes:
        """The answer of caching_sha2_password for an account that is not in the server's cache.

        Raises :class:`PublicKeyLoginNeeded` if only a connection without TLS may send it, and :class:`Refused`.
        """
        if self.channel is Channel.VERIFIED or not self.password:
            return self.password + _EMPTY
        if not self.retrieves_key:
            raise Refused(CACHING, f"the account is not in the server's cache and {_UNVERIFIED}")
        if self.channel is Channel.ENCRYPTED:
            raise PublicKeyLoginNeeded
        return _REQUEST_KEY_CACHING

    def with_public_key(self, key: bytes, salt: bytes) -> bytes:
        """The password, encrypted with a public key that the server sent. Raises :class:`Refused`,
        :class:`Malformed`."""
        if not self.retrieves_key or self.channel is not Channel.PLAIN:
            raise Refused(SHA256, _UNVERIFIED)
        try:
            is_usable = isinstance(serialization.load_pem_public_key(key), RSAPublicKey)
        except (ValueError, UnsupportedAlgorithm):
            is_usable = False
        if not is_usable:
            raise Malformed("the server did not send a valid public key")
        try:
            return proofs.sha2_rsa_encrypt(self.password, _checked(salt, _SALT_BYTES), key)
        except ValueError:
            raise Malformed("the server's public key is too short for the password") from None

    def _sha256(self) -> bytes:
        if not self.password or self.channel is Channel.VERIFIED:
            return self.password + _EMPTY
        if not self.retrieves_key:
            raise Refused(SHA256, _UNVERIFIED)
        if self.channel is Channel.ENCRYPTED:
            raise Refused(
                SHA256,
                f"over TLS this method sends clear text and {_UNVERIFIED}; servers send their key only without TLS",
            )
        return _REQUEST_KEY_SHA256

    def _clear(self, method: str) -> bytes:
        if self.password and self.channel is not Channel.VERIFIED:
            raise Refused(method, f"this method sends clear text and {_UNVERIFIED}")
        return self.password + _EMPTY

    def _ed25519(self, salt: bytes) -> bytes:
        try:
            return proofs.ed25519_password(self.password, salt)
        except RuntimeError as error:
            raise Unknown(ED25519, str(error)) from None


def _checked(salt: bytes, size: int) -> bytes:
    if len(salt) != size:
        raise Malformed(f"the server's challenge has {len(salt)} bytes, not {size}")
    return salt
