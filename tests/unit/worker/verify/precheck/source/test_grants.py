"""SHOW GRANTS of different servers."""

from __future__ import annotations

from shardmerge.worker.verify.precheck.source.grants import parse_grants

MYSQL_8 = (
    "GRANT RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `dm`@`%`",
    "GRANT BACKUP_ADMIN,XA_RECOVER_ADMIN ON *.* TO `dm`@`%` WITH GRANT OPTION",
    "GRANT SELECT, INSERT ON `shard\\_1`.* TO `dm`@`%`",
    "GRANT SELECT ON `order%`.* TO `dm`@`%`",
    "GRANT SELECT (`a`, `b`), UPDATE ON `x.y`.`on ``to` TO `dm`@`%`",
    "GRANT `reader`@`%` TO `dm`@`%`",
    "GRANT EXECUTE ON PROCEDURE `shard`.`p` TO `dm`@`%`",
)


def test_levels_and_patterns() -> None:
    grants = parse_grants("dm@%", MYSQL_8)
    assert grants.lacks(("REPLICATION SLAVE", "REPLICATION CLIENT", "SUPER")) == ["SUPER"]
    assert grants.has("SELECT", "shard_1") and grants.has("SELECT", "shard_1", "t")
    assert not grants.has("SELECT", "shardx1") and not grants.has("SELECT")
    assert grants.has("SELECT", "orders_7") and not grants.has("DELETE", "orders_7")
    assert grants.has("UPDATE", "x.y", "on `to") and not grants.has("SELECT", "x.y", "on `to")
    assert not grants.has("UPDATE", "x.y") and not grants.has("EXECUTE", "shard", "p")


def test_all_privileges_and_other_names() -> None:
    for line in ("GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' IDENTIFIED BY PASSWORD '*X' WITH GRANT OPTION",):
        assert parse_grants("root@%", [line]).lacks(("REPLICATION CLIENT", "SELECT", "CREATE"), "any") == []
    assert parse_grants("u@%", ["GRANT BINLOG MONITOR ON *.* TO `u`@`%`"]).has("REPLICATION CLIENT")
    assert not parse_grants("u@%", ["GRANT USAGE ON *.* TO `u`@`%`"]).has("SELECT", "a", "b")
    assert parse_grants("u@%", ["GRANT ALL PRIVILEGES ON `a`.* TO `u`@`%`"]).has("CREATE", "a")


def test_partial_revokes() -> None:
    grants = parse_grants("u@%", ["GRANT SELECT ON *.* TO `u`@`%`", "REVOKE SELECT ON `secret`.* FROM `u`@`%`"])
    assert grants.has("SELECT") and grants.has("SELECT", "open", "t") and not grants.has("SELECT", "secret", "t")


def test_the_statement_names_the_account_as_it_is() -> None:
    grants = parse_grants("o'neil@x@10.0.%", [])
    assert grants.statement(["SELECT", "INSERT"], "`a`.*") == "GRANT SELECT, INSERT ON `a`.* TO 'o''neil@x'@'10.0.%';"
