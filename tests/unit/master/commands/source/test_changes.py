"""What another source file changes, and what of that a source with tasks refuses."""

from __future__ import annotations

import pytest

from shardmerge.master.commands.source.changes import asks_the_source, check_changeable, moves_away, source_changes
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto.config.source import parse_source
from shardmerge.proto.errors import ShardmergeError

BEFORE = """source-id: a
from: {host: db-1, port: 3306, user: dm, password: "old secret"}
"""


def _parsed(text: str) -> config.SourceConfig:
    return parse_source(text, "a.yaml", {})


def _changes(text: str, before: str = BEFORE) -> dict[str, tuple[str, str]]:
    found = source_changes(_parsed(before), _parsed(text))
    assert all(one.source == "a" and one.effect for one in found)
    return {one.key: (one.before, one.after) for one in found}


def test_the_same_file_changes_nothing() -> None:
    assert _changes(BEFORE) == {}
    assert _changes(BEFORE + "enable: true\nflavor: auto\nserver-id: 0\n") == {}


def test_no_password_is_shown() -> None:
    found = _changes(BEFORE.replace("old secret", "new secret").replace("dm,", "dm2,"))
    assert found == {"from.password": ("(not shown)", "(not shown)"), "from.user": ("dm", "dm2")}


def test_no_certificate_is_reported() -> None:
    pem = '"-----BEGIN {} s3cret"'
    text = BEFORE.replace(
        "password:", f"security: {{ssl-cert-bytes: {pem.format('x')}, ssl-key-bytes: {pem.format('y')}}}, password:"
    )
    hidden = ("(not shown)", "(not shown)")
    assert _changes(text) == {"from.security.ssl-cert-bytes": hidden, "from.security.ssl-key-bytes": hidden}


def test_every_key_is_named_as_in_the_file() -> None:
    text = """source-id: a
from:
  host: db-2
  port: 3307
  user: dm
  password: old secret
  session: {time_zone: "+01:00"}
  security: {ssl-ca: ca.pem, ssl-cert: c.pem, ssl-key: k.pem, cert-allowed-cn: [x]}
server-id: 7
flavor: mysql
enable: false
enable-gtid: true
case-sensitive: true
relay-binlog-name: mysql-bin.000004
relay-binlog-gtid: 0-1-2
purge: {interval: 60, expires: 5, remain-space: 1}
"""
    found = _changes(text)
    assert set(found) == {
        "from.host",
        "from.port",
        "from.session.time_zone",
        "from.security.ssl-ca",
        "from.security.ssl-cert",
        "from.security.ssl-key",
        "from.security.cert-allowed-cn",
        "server-id",
        "flavor",
        "enable",
        "enable-gtid",
        "case-sensitive",
        "relay-binlog-name",
        "relay-binlog-gtid",
        "purge.interval",
        "purge.expires",
        "purge.remain-space",
    }
    assert found["enable"] == ("true", "false")
    assert found["from.port"] == ("3306", "3307")
    assert found["from.session.time_zone"] == ("", "+01:00")


def test_only_another_address_is_a_move() -> None:
    for change, moves in (("db-2", True), ("db-1", False)):
        text = BEFORE.replace("db-1", change).replace("old secret", "new")
        assert moves_away(source_changes(_parsed(BEFORE), _parsed(text))) is moves
    assert moves_away(source_changes(_parsed(BEFORE), _parsed(BEFORE.replace("3306", "3307"))))


def test_a_source_that_is_only_disabled_is_not_asked() -> None:
    for extra, asked in (
        ("enable: false\n", False),
        ("enable: false\nserver-id: 3\n", True),
        ("server-id: 3\n", True),
    ):
        after = _parsed(BEFORE + extra)
        assert asks_the_source(source_changes(_parsed(BEFORE), after), after) is asked
    assert asks_the_source(source_changes(_parsed(BEFORE + "enable: false\n"), _parsed(BEFORE)), _parsed(BEFORE))


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("", "case-sensitive: true\n", "case-sensitive"),
        ("flavor: mysql\n", "flavor: mariadb\n", "flavor"),
        ("flavor: mysql\n", "flavor: auto\n", ""),
        ("", "flavor: mariadb\n", ""),
        ("", "enable-gtid: true\nserver-id: 9\n", ""),
    ],
)
def test_what_is_fixed_under_tasks(before: str, after: str, key: str) -> None:
    pair = _parsed(BEFORE + before), _parsed(BEFORE + after)
    check_changeable(*pair, ())
    if not key:
        check_changeable(*pair, ("t",))
        return
    with pytest.raises(ShardmergeError) as caught:
        check_changeable(*pair, ("t", "u"))
    assert caught.value.spec is errors.master.SOURCE_UPDATE_FIXED
    assert f": {key} cannot change" in caught.value.message and "t, u" in caught.value.message
