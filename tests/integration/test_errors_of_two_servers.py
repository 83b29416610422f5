"""Tests that an error names the server that has raised it, where one block of code works with both."""

from __future__ import annotations

from contextlib import closing

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint, Side, coded_errors, connect, rows
from tests.integration.snapshot_tables import servers, source, target
from tests.support.database import Database

__all__ = ["servers", "source", "target"]


def endpoint(server: Database) -> Endpoint:
    return Endpoint("127.0.0.1", server.port, "root")


def test_an_error_of_the_target_is_none_of_the_source(source: Database, target: Database) -> None:
    at_source, at_target = endpoint(source), endpoint(target)
    with (
        closing(connect(at_source, Side.SOURCE, name="s1")) as first,
        closing(connect(at_target, Side.TARGET, name="target")) as second,
    ):
        with pytest.raises(ShardmergeError) as caught, coded_errors(at_source, Side.SOURCE, "s1"):
            rows(second, "SELECT 1 FROM nowhere.t")
        assert caught.value.spec is errors.replicate.TARGET_STATEMENT
        assert f":{target.port} " in str(caught.value)
        with pytest.raises(ShardmergeError) as caught, coded_errors(at_target, Side.TARGET, "target"):
            rows(first, "SELECT 1 FROM nowhere.t")
        assert caught.value.spec is errors.relay.SOURCE_REJECTED
        assert "s1" in str(caught.value)
