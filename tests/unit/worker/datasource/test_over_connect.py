"""What differs for a session of Spark Connect, without one: what is registered, and what is refused."""

from __future__ import annotations

import json
import pickle

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.datasource.mysql_cdc import MySQLChanges
from shardmerge.worker.datasource.mysql_shards import MySQLShards
from shardmerge.worker.datasource.registration import MySQLChangesOverConnect, MySQLShardsOverConnect, is_connect

ONE = {"host": "h", "user": "u", "tables": "shop_*.orders_*"}
SOURCES = json.dumps(
    {"a": {"host": "h", "user": "u", "password-file": "f"}, "b": {"host": "h", "user": "u", "password": "x"}}
)


def _refused(source: type[DataSource], options: dict[str, str], spec: ErrorSpec) -> ShardmergeError:
    with pytest.raises(ShardmergeError) as caught:
        source(options)
    assert caught.value.spec is spec, caught.value
    return caught.value


def test_sessions_are_distinguished_without_an_import() -> None:
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    assert is_connect(connect)
    assert is_connect(type("Own", (connect,), {"__module__": "own"}))
    assert not is_connect(SparkSession)


@pytest.mark.parametrize("source", [MySQLShardsOverConnect, MySQLChangesOverConnect])
def test_a_password_in_the_options_is_refused(source: type[DataSource]) -> None:
    _refused(source, ONE | {"password": "secret"}, errors.read.PASSWORD_IN_PLAN)
    error = _refused(source, {"sources": SOURCES, "tables": "a.b"}, errors.read.PASSWORD_IN_PLAN)
    assert "source b:" in error.message
    assert error.workaround in error.__notes__
    for options in ({"password-env": "NAME"}, {"password-file": "name"}, {}):
        made = source(ONE | options)
        assert pickle.loads(pickle.dumps(made)).name() == made.name()


def test_the_formats_keep_their_names() -> None:
    assert MySQLShardsOverConnect.name() == MySQLShards.name() == "mysql-shards"
    assert MySQLChangesOverConnect.name() == MySQLChanges.name() == "mysql-cdc"


def test_a_stream_has_no_fixed_position() -> None:
    assert "position" in _refused(MySQLChanges, ONE | {"position": "{}"}, errors.read.OPTION).message
