"""Tests that only a holder of the cluster's key can call, only at a server that holds it, and each request once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors, identity_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.caller_proof import METADATA, CallerCheck, CallerSession, UsedNumbers

KEYS = {"one": b"k" * 32}
METHOD = "/shardmerge.v1.Master/StartTask"


class _Server:
    """A server with these keys, and a caller's session with it."""

    def __init__(self, keys: Mapping[str, bytes] = KEYS, own: Mapping[str, bytes] = KEYS) -> None:
        self.keys = dict(keys)
        self.check = CallerCheck(lambda: self.keys, "dm-master m")
        self.own = dict(own)
        self.session = CallerSession(lambda: self.own, "m", lambda request: self.check.prove(request))

    def proof(self, session: CallerSession | None = None) -> bytes:
        found = (session or self.session).proof(METHOD, b"file")
        assert found is not None
        return found

    def receive(self, proof: bytes, request: bytes = b"file", method: str = METHOD) -> None:
        self.check.check(self.check.read({METADATA: proof}), method, request)

    def refuses(self, proof: bytes, request: bytes = b"file", method: str = METHOD) -> str:
        with pytest.raises(ShardmergeError) as caught:
            self.receive(proof, request, method)
        return caught.value.spec.name


def test_a_proof_is_for_one_request_and_used_once() -> None:
    server = _Server()
    proof = server.proof()
    assert server.refuses(proof, b"another file") == "caller-unknown"
    assert server.refuses(proof, method="/shardmerge.v1.Master/OperateTask") == "caller-unknown"
    server.receive(proof)
    assert server.refuses(proof) == "caller-unknown"


def test_calls_of_one_channel_may_overtake_each_other() -> None:
    server = _Server()
    proofs = [server.proof() for _ in range(50)]
    for proof in reversed(proofs):
        server.receive(proof)
    assert {server.refuses(proof) for proof in proofs} == {"caller-unknown"}


@given(st.lists(st.integers(1, 3000) | st.integers(1, 1 << 64), max_size=200))
def test_no_number_is_used_twice(numbers: list[int]) -> None:
    kept, used = UsedNumbers(), set[int]()
    for number in numbers:
        if kept.use(number):
            assert number not in used
            used.add(number)
        else:  # also a new one, if it is much smaller than the greatest
            assert number in used or max(used) - number >= 1024


@pytest.mark.parametrize("metadata", [{}, {METADATA: "text"}, {METADATA: b"\xff"}, {METADATA: b""}])
def test_a_call_without_a_proof(metadata: dict[str, str | bytes]) -> None:
    with pytest.raises(ShardmergeError) as caught:
        _Server().check.read(metadata)
    assert caught.value.spec is errors.tls.CALLER_UNKNOWN


def test_a_caller_with_another_key_sends_nothing() -> None:
    for keys in ({}, {"two": b"l" * 32}, {"one": b"l" * 32}):
        server = _Server(keys)
        with pytest.raises(ShardmergeError) as caught:
            server.proof()
        assert caught.value.spec is errors.tls.SERVER_UNPROVEN


def test_a_forged_proof() -> None:
    """Everything but the key is known to the attacker: the identifier of the key and the challenge are public."""
    server = _Server()
    challenge = server.check.prove(identity_pb2.ProveRequest(nonce=b"n" * 16)).challenge
    forger = CallerSession(lambda: {"one": b"l" * 32}, "m", lambda request: _forged(b"l" * 32, challenge, request))
    assert server.refuses(server.proof(forger)) == "caller-unknown"


def _forged(key: bytes, challenge: bytes, request: identity_pb2.ProveRequest) -> identity_pb2.ProveResponse:
    forger = CallerCheck(lambda: {"one": key}, "forger", challenge=lambda: challenge)
    return forger.prove(request)


def test_a_proof_of_a_server_is_not_one_of_a_caller() -> None:
    """The MAC that a server gives for a nonce of the attacker's choice is of no use at a server."""
    server = _Server()
    shown = server.check.prove(identity_pb2.ProveRequest(nonce=b"caller" + b"n" * 16))
    proof = identity_pb2.CallerProof(
        key_id="one", challenge=shown.challenge, session=b"s" * 16, number=1, mac=shown.proofs[0].mac
    )
    assert server.refuses(proof.SerializeToString()) == "caller-unknown"


def test_a_server_that_has_started_anew_is_asked_again() -> None:
    server = _Server()
    old = server.proof()
    server.receive(old)
    server.check = CallerCheck(lambda: server.keys, "dm-master m")
    assert server.refuses(old) == "caller-proof-stale"
    assert server.refuses(server.proof()) == "caller-proof-stale"
    server.session.forget()
    server.receive(server.proof())


def test_a_key_is_replaced_without_a_stop() -> None:
    """Both are valid while both are in the files; then the old one is worth nothing."""
    old, new = b"o" * 32, b"n" * 32
    server = _Server({"old": old}, {"old": old})
    server.receive(server.proof())
    server.keys = {"new": new, "old": old}
    server.receive(server.proof())
    later = CallerSession(lambda: {"new": new, "old": old}, "m", server.check.prove)
    server.receive(server.proof(later))
    server.keys = {"new": new}
    assert server.refuses(server.proof()) == "caller-unknown"
    server.receive(server.proof(later))
    # A channel that lives on uses the new key once it was refused.
    server.own = {"new": new, "old": old}
    server.session.forget()
    server.receive(server.proof())


def test_a_caller_without_a_key_proves_nothing() -> None:
    server = _Server(own={})
    assert server.session.proof(METHOD, b"file") is None
    server.own = dict(KEYS)  # the master has made it meanwhile
    server.receive(server.proof())


def test_sessions_take_bounded_memory() -> None:
    """No session is forgotten alone: all of them begin again, and no old proof becomes valid."""
    server = _Server()
    server.check = CallerCheck(lambda: server.keys, "dm-master m", most_sessions=100)
    first = server.proof()
    server.receive(first)
    for _ in range(99):
        server.receive(server.proof(CallerSession(lambda: KEYS, "m", server.check.prove)))
    assert server.refuses(server.proof(CallerSession(lambda: KEYS, "m", server.check.prove))) == "caller-proof-stale"
    assert server.refuses(first) == "caller-proof-stale"
    server.session.forget()
    server.receive(server.proof())


@pytest.mark.parametrize("size", [0, 15, 65, 4000])
def test_the_nonce_has_a_fitting_size(size: int) -> None:
    with pytest.raises(ShardmergeError) as caught:
        _Server().check.prove(identity_pb2.ProveRequest(nonce=b"n" * size))
    assert caught.value.spec is errors.tls.CALLER_UNKNOWN
