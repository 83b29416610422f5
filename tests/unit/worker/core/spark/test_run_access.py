"""What the tasks of a run are recognised by, and what they are pickled without."""

from __future__ import annotations

import pickle

import pytest

from shardmerge.proto import relay_pb2
from shardmerge.worker.core.mysql.endpoint import Endpoint, Tls
from shardmerge.worker.core.spark.run_access import RunAccess, new_secret

SOURCE = Endpoint("h1", 3306, "dm", "source-pass", tls=Tls(ca_content="CA", cert_content="CERT", key_content="KEY"))
TARGET = Endpoint("h2", 3306, "dm", "target-pass")


def test_secrets_differ() -> None:
    assert len({new_secret() for _ in range(100)}) == 100


@pytest.mark.parametrize("given", ["", "s", "secret ", "Secret", "sécret", "\ud7ff"])
def test_another_secret_is_not_admitted(given: str) -> None:
    access = RunAccess("secret", SOURCE, TARGET)
    assert access.admits(relay_pb2.TaskIdentity(run_secret="secret"))
    assert not access.admits(relay_pb2.TaskIdentity(run_secret=given))


def test_a_run_without_a_secret_admits_nothing() -> None:
    assert not RunAccess("", SOURCE, TARGET).admits(relay_pb2.TaskIdentity())


def test_endpoints_are_pickled_without_secrets_and_get_them_back() -> None:
    access = RunAccess("secret", SOURCE, TARGET)
    bare = [SOURCE.without_secrets(), TARGET.without_secrets()]
    pickled = pickle.dumps(bare)
    assert not [word for word in (b"source-pass", b"target-pass", b"KEY") if word in pickled]
    given = access.credentials_of_reader()
    assert [bare[0].with_secrets(given.source), bare[1].with_secrets(given.target)] == [SOURCE, TARGET]


def test_a_lane_gets_the_target_s_secrets_only() -> None:
    given = RunAccess("secret", SOURCE, TARGET).credentials_of_lane()
    assert TARGET.without_secrets().with_secrets(given.target) == TARGET
    assert not given.HasField("source")


def test_nothing_of_it_is_shown() -> None:
    assert "secret" not in repr(RunAccess("secret", SOURCE, TARGET))
