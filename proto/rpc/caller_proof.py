"""Proves that a call comes from a holder of the cluster's key, and that its server holds the key too.

This is for connections in plain text. Certificates and the local socket show who calls by themselves::

    caller ── Prove(nonce) ──────▶ server
           ◀─ challenge, MAC ────  over: "server", nonce, challenge
    caller ── call, with a MAC ──▶ over: "caller", challenge, session, number, method, SHA-256 of the request

The key is never sent: a program that takes the place of a server receives neither the key nor a request. A proof is for
one request at one server: the challenge is new at each start of it, and each number of a session is used once. MAC:
HMAC-SHA-256 (FIPS 198-1) under a key that is derived from the cluster's key; the window of numbers: RFC 4303, 3.4.3.
A key file may hold several keys: the caller uses the first one of its own that the server has.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from shardmerge.proto import errors, identity_pb2
from shardmerge.proto.errors import ShardmergeError

METADATA = "shardmerge-caller-bin"
"""The metadata of a call with its :class:`CallerProof`, serialized."""

CallKeys = Callable[[], Mapping[str, bytes]]
"""The keys for proofs by their identifiers, the own one first; they may change at any time."""

_RANDOM_BYTES = 16
_MOST_NONCE_BYTES = 64
_WINDOW = 1024
"""So many later calls of a session may arrive before an earlier one."""
_MOST_SESSIONS = 10_000


def _mac(key: bytes, *parts: bytes) -> bytes:
    text = b"".join(len(part).to_bytes(4) + part for part in parts)
    return hmac.digest(key, text, hashlib.sha256)


def _caller_mac(key: bytes, proof: identity_pb2.CallerProof, method: str, request: bytes) -> bytes:
    digest = hashlib.sha256(request).digest()
    return _mac(key, b"caller", proof.challenge, proof.session, proof.number.to_bytes(8), method.encode(), digest)


@dataclass(slots=True)
class UsedNumbers:
    """The used numbers of a session. ``seen``: bit n is set if ``highest`` - n was used."""

    highest: int = 0
    seen: int = 0

    def use(self, number: int) -> bool:
        """Whether ``number`` was not used before; it is from now on."""
        if number > self.highest:
            self.seen = ((self.seen << min(number - self.highest, _WINDOW)) | 1) & ((1 << _WINDOW) - 1)
            self.highest = number
            return True
        place = self.highest - number
        if place >= _WINDOW or self.seen >> place & 1:
            return False
        self.seen |= 1 << place
        return True


class CallerCheck:
    """The server's side. Thread-safe. ``program``: named in errors; ``most_sessions``: of them the numbers are kept;
    ``challenge``: makes one that was never used."""

    def __init__(
        self,
        keys: CallKeys,
        program: str,
        most_sessions: int = _MOST_SESSIONS,
        challenge: Callable[[], bytes] = lambda: secrets.token_bytes(_RANDOM_BYTES),
    ) -> None:
        self._keys, self._program, self._most_sessions, self._new_challenge = keys, program, most_sessions, challenge
        self._lock = threading.Lock()
        self._challenge = challenge()
        self._sessions: dict[bytes, UsedNumbers] = {}

    def prove(self, request: identity_pb2.ProveRequest) -> identity_pb2.ProveResponse:
        """Show that this server holds the cluster's key; no proof if it has no key. Raises CALLER_UNKNOWN for a nonce
        that is no random text."""
        if not _RANDOM_BYTES <= len(request.nonce) <= _MOST_NONCE_BYTES:
            raise self._unknown(f"its nonce has {len(request.nonce)} bytes")
        challenge = self._challenge
        return identity_pb2.ProveResponse(
            challenge=challenge,
            proofs=[
                identity_pb2.ServerProof(key_id=name, mac=_mac(key, b"server", request.nonce, challenge))
                for name, key in self._keys().items()
            ],
        )

    def read(self, metadata: Mapping[str, str | bytes]) -> identity_pb2.CallerProof:
        """The proof of a call, which is not checked yet. Raises CALLER_UNKNOWN and CALLER_PROOF_STALE."""
        raw = metadata.get(METADATA)
        if not isinstance(raw, bytes):
            raise self._unknown("it shows none")
        try:
            proof = identity_pb2.CallerProof.FromString(raw)
        except DecodeError:
            raise self._unknown("its proof is no message of this version") from None
        if proof.key_id not in self._keys():
            raise self._unknown("its key is not one of this cluster")
        if proof.challenge != self._challenge:
            raise errors.tls.CALLER_PROOF_STALE(program=self._program)
        return proof

    def check(self, proof: identity_pb2.CallerProof, method: str, request: bytes) -> None:
        """Raises CALLER_UNKNOWN and CALLER_PROOF_STALE unless the proof is for this call, and is used for the first
        time."""
        key = self._keys().get(proof.key_id, b"")
        if not key or not hmac.compare_digest(_caller_mac(key, proof, method, request), proof.mac):
            raise self._unknown("its proof is not for this call")
        with self._lock:
            if proof.challenge != self._challenge:
                raise errors.tls.CALLER_PROOF_STALE(program=self._program)
            numbers = self._sessions.get(proof.session)
            if numbers is None:
                if len(self._sessions) >= self._most_sessions:
                    # No session may be forgotten alone: its proofs could be used again.
                    self._sessions.clear()
                    self._challenge = self._new_challenge()
                    raise errors.tls.CALLER_PROOF_STALE(program=self._program)
                numbers = self._sessions[proof.session] = UsedNumbers()
            if not numbers.use(proof.number):
                raise self._unknown("its proof was used before")

    def _unknown(self, reason: str) -> ShardmergeError:
        return errors.tls.CALLER_UNKNOWN(program=self._program, reason=reason)


class CallerSession:
    """The caller's side of one channel. Thread-safe. ``keys``: the caller's at any time, for a channel may outlive a
    key. ``prove``: asks the server. ``peer``: names it in errors."""

    def __init__(
        self,
        keys: CallKeys,
        peer: str,
        prove: Callable[[identity_pb2.ProveRequest], identity_pb2.ProveResponse],
    ) -> None:
        self.keys, self._peer, self._prove = keys, peer, prove
        self._lock = threading.Lock()
        self._session = secrets.token_bytes(_RANDOM_BYTES)
        self._number = 0
        self._challenge = b""
        self._key_id, self._key = "", b""

    def forget(self) -> None:
        """Ask the server again before the next call: it has started anew, or the key was replaced."""
        with self._lock:
            self._challenge = b""

    def proof(self, method: str, request: bytes) -> bytes | None:
        """The metadata for one call with this serialized request; None: the caller has no key. Raises SERVER_UNPROVEN,
        and what ``prove`` does."""
        with self._lock:
            if not self._challenge:
                keys = self.keys()
                if not keys:
                    return None
                self._key_id, self._challenge = self._proven(keys)
                self._key = keys[self._key_id]
            key = self._key
            self._number += 1
            proof = identity_pb2.CallerProof(
                key_id=self._key_id, challenge=self._challenge, session=self._session, number=self._number
            )
        proof.mac = _caller_mac(key, proof, method, request)
        return proof.SerializeToString()

    def _proven(self, keys: Mapping[str, bytes]) -> tuple[str, bytes]:
        """The key that both sides have, and the server's challenge."""
        nonce = secrets.token_bytes(_RANDOM_BYTES)
        answer = self._prove(identity_pb2.ProveRequest(nonce=nonce))
        shown = {proof.key_id: proof.mac for proof in answer.proofs}
        for name, key in keys.items():
            if name in shown:
                if answer.challenge and hmac.compare_digest(shown[name], _mac(key, b"server", nonce, answer.challenge)):
                    return name, answer.challenge
                break
        reason = "it shows no proof of a key" if not shown else "it does not hold a key of this process"
        raise errors.tls.SERVER_UNPROVEN(peer=self._peer, reason=reason)


def _no_keys() -> Mapping[str, bytes]:
    return {}


@dataclass(slots=True)
class _Process:
    keys: CallKeys = _no_keys


_process = _Process()


def use(keys: CallKeys) -> None:
    """Let the channels of this process prove their calls with these keys. Global to the process, as its certificates
    are (:mod:`shardmerge.proto.tls.process`)."""
    _process.keys = keys


def use_file(configured: str, environment: Mapping[str, str]) -> None:
    """:func:`use` the keys that a file has now. ``configured``: its path; "": where a daemon of this user has it, and
    if it cannot be read there, calls are not proved. Raises SECRET_KEY_UNUSABLE for a ``configured`` file."""
    from shardmerge.proto import secret  # a program with certificates does not need it
    from shardmerge.proto.config.secrets.key_file import key_file

    found: dict[str, bytes] = {}
    try:
        found = secret.load_key(key_file(configured, environment).path).call_keys
    except ShardmergeError:
        if configured:
            raise
    use(lambda: found)


def keys_of_process() -> Mapping[str, bytes]:
    """The keys of :func:`use` now; empty: calls are not proved."""
    return _process.keys()


def is_used() -> bool:
    """Whether :func:`use` was called."""
    return _process.keys is not _no_keys
