"""Every key of DM's files: supported, noted with what it does here, or refused with the reason; and the form of each
value that has one. The tables are DM's keys (tiflow, dm/config and dm/master, dm/worker config.go), block by block."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors
from shardmerge.proto.config.check import Checked, FileKind, check_text
from tests.unit.proto.config.samples import SOURCE, TASK

BLOCKS = {
    "task": "{}\n",
    "target": "target-database: {{host: h, port: 1, user: u, {}}}\n",
    "security": "target-database: {{host: h, port: 1, user: u, security: {{{}}}}}\n",
    "instance": "    {}\n",
    "mydumper": "    mydumper: {{{}}}\n",
    "loader": "    loader: {{{}}}\n",
    "syncer": "    syncer: {{{}}}\n",
    "validator": "validators: {{global: {{{}}}}}\n",
    "source": "{}\n",
    "from": "from: {{host: h, port: 1, user: u, {}}}\n",
    "purge": "purge: {{{}}}\n",
    "checker": "checker: {{{}}}\n",
    "master": "{}\n",
    "worker": "{}\n",
}

SUPPORTED = {
    "task": """
        shard-mode: pessimistic | is-sharding: true | ignore-checking-items: [version] | meta-schema: m |
        case-sensitive: true | online-ddl: false | shadow-table-rules: ['^_(.+)_s$'] |
        trash-table-rules: ['^_(.+)_t$'] | name: other | collation_compatible: strict""",
    "target": """
        password: p | session: {tidb_mem_quota_query: 8589934592, tidb_constraint_check_in_place: 0}""",
    "security": """
        ssl-ca: /ca | ssl-cert: /c, ssl-key: /k | cert-allowed-cn: [a] | allow-public-key-retrieval: true""",
    "instance": """
        mydumper-thread: 3 | stop-at: mysql-bin.000001:4""",
    "mydumper": """
        threads: 3 | rows: 10""",
    "syncer": """
        safe-mode: true""",
    "source": """
        enable: true | enable: false | enable-gtid: true | flavor: MariaDB | server-id: 7 | case-sensitive: true |
        relay-binlog-name: a.000001 | relay-binlog-gtid: 0-1-2""",
    "from": """
        password: p | session: {a: 1} | security: {ssl-ca: /ca}""",
    "purge": """
        interval: 1 | expires: 2 | remain-space: 3""",
    "master": """
        name: m | {advertise-addr: 'h:1', insecure: true} | etcd: ['h:1'] | {master-addr: ':1', insecure: true} |
        master-socket: /s | rpc-timeout: 30s | rpc-timeout: 5 |
        log-level: FATAL | log-level: warn | log-file: f | log-format: json | secret-key-path: /k |
        worker-ttl: 5 | lock-alert-seconds: 1m | {ssl-ca: c, ssl-cert: c, ssl-key: k, cert-allowed-cn: [a]} |
        {etcd: ['https://h:1'], etcd-ssl-ca: c} | etcd: ['http://h:1'] |
        allowed-networks: [10.0.0.0/8, 'fd00::/8', 10.1.2.3, db-1.internal] | env-prefixes: [MY_] |
        env-prefixes: []""",
    "worker": """
        name: w | {advertise-addr: 'h:1', insecure: true} | etcd: ['h:1'] | {worker-addr: ':1', insecure: true} |
        insecure: false | log-level: debug | log-file: f |
        log-format: text | secret-key-path: /k | keepalive-ttl: 60 | relay-dir: r | drain-seconds: 3 |
        spark: {master: 'local[2]'} | {ssl-ca: c, ssl-cert: c, ssl-key: k, cert-allowed-cn: [a]} |
        {etcd: ['https://h:1'], etcd-ssl-ca: c} | etcd: ['http://h:1'] | transform-modules: [own.functions] |
        allowed-networks: [10.0.0.0/8, 'fd00::/8', 10.1.2.3, db-1.internal]""",
}
NOTED = {
    "task": """
        strict-optimistic-shard-mode: true, shard-mode: optimistic | timezone: Asia/Shanghai |
        timezone: '+08:00' | timezone: UTC | online-ddl-scheme: pt |
        clean-dump-file: false | enable-heartbeat: true | heartbeat-update-interval: 2 |
        heartbeat-report-interval: 2 | ansi-quotes: true | remove-meta: true | mariadb2tidb: {a: b}""",
    "target": """
        max-allowed-packet: 67108864""",
    "instance": """
        loader-thread: 4 | syncer-thread: 4""",
    "mydumper": """
        mydumper-path: x | chunk-filesize: 64 | chunk-filesize: 256MiB | statement-size: 5 | skip-tz-utc: false |
        extra-args: '--consistency none' | extra-args: '-F 256MB -t8 --rows=2000 -W --statement-size 1000'""",
    "loader": """
        pool-size: 8 | dir: 's3://b/d' | sorting-dir-physical: d | import-mode: sql | import-mode: loader |
        import-mode: logical | import-mode: Physical | import-mode: import-into | on-duplicate: replace |
        on-duplicate-logical: replace | on-duplicate-logical: error | on-duplicate-logical: ignore |
        on-duplicate-physical: none | on-duplicate-physical: manual | disk-quota-physical: 500GiB |
        disk-quota-physical: 0 | checksum-physical: required | checksum-physical: optional |
        checksum-physical: 'off' | analyze: optional | range-concurrency: 16 | compress-kv-pairs: gzip |
        compress-kv-pairs: gz | pd-addr: 'h:1'""",
    "syncer": """
        worker-count: 16 | batch: 100 | meta-file: f | queue-size: 5 | checkpoint-flush-interval: 30 |
        compact: true | multiple-rows: true | max-retry: 3 | auto-fix-gtid: true | enable-gtid: true |
        disable-detect: true | safe-mode-duration: 60s | enable-ansi-quotes: true""",
    "source": """
        auto-fix-gtid: true | relay-dir: r | meta-dir: m | charset: utf8 | enable-relay: false | tracer: {a: b}""",
    "from": """
        max-allowed-packet: 1""",
    "master": """
        log-rotate: day | rpc-rate-limit: 10.5 | rpc-rate-burst: 40 | openapi: true |
        experimental: {openapi: true} | data-dir: d | peer-urls: 'http://h:1' |
        advertise-peer-urls: 'http://h:1' | initial-cluster: 'a=http://h:1' | initial-cluster-state: new |
        join: 'h:1' | max-txn-ops: 2048 | max-request-bytes: 1572864 | auto-compaction-mode: revision |
        auto-compaction-retention: 1h | quota-backend-bytes: 2GiB""",
    "worker": """
        log-rotate: day | relay-keepalive-ttl: 1800 | relay-keepalive-ttl: 30m | join: 'http://h:1'""",
}
REFUSED = {
    "task": """
        task-mode: dump | task-mode: load | task-mode: load&sync""",
    "mydumper": """
        where: id > 5 | extra-args: '--filter a.b' | extra-args: '-T a.b' | extra-args: '--where "a"' |
        extra-args: '-WTa.b' | extra-args: '--rowsets 1' | extra-args: '--no-data'""",
    "master": """
        ssl-key-base64: x | v1-sources-path: p""",
    "worker": """
        ssl-ca-base64: x | redact-info-log: true""",
}
WRONG = {
    "task": """
        timezone: Asia/Shangai | timezone: ../../etc/passwd | timezone: '+25:00' | shard-mode: pesimistic |
        online-ddl: 2 | collation_compatible: lose | online-ddl-scheme: ghost | heartbeat-update-interval: 1s |
        name: a/b | meta-schema: ''""",
    "target": """
        max-allowed-packet: 64M | session: {'a b': 1}""",
    "security": """
        ssl-cert: /c | cert-allowed-cn: a | ssl-ca-bytes: x | ssl-ca-base64: x | ssl-ca-base64: eA== |
        ssl-key-bytes: [45, 300] | ssl-cert-bytes: '-----BEGIN x'""",
    "instance": """
        mydumper-thread: -1 | meta: {binlog-pos: 4} | stop-at: never | route-rules: r1""",
    "mydumper": """
        threads: 0 | chunk-filesize: big | chunk-filesize: 64 parsecs | rows: -1 | skip-tz-utc: maybe""",
    "loader": """
        import-mode: fast | on-duplicate-logical: merge | on-duplicate: x | on-duplicate-physical: remove |
        checksum-physical: yes! | disk-quota-physical: much | analyze: always | range-concurrency: a |
        compress-kv-pairs: zstd | pool-size: -1""",
    "syncer": """
        safe-mode-duration: 60 | safe-mode-duration: soon | batch: 0 | worker-count: 0 | compact: 1.5 |
        queue-size: x""",
    "validator": """
        mode: slow | worker-count: x | validate-interval: 10 | check-interval: 5x | row-error-delay: long |
        meta-flush-interval: '1 m' | batch-query-size: -1 | max-pending-row-size: 500x |
        max-pending-row-count: 1.5""",
    "source": """
        flavor: oracle | server-id: -1 | enable-relay: si | source-id: a/b | filters: {a: b}""",
    "purge": """
        interval: 1h | expires: -1 | remain-space: 15GiB""",
    "checker": """
        check-enable: x | backoff-rollback: 5 | backoff-max: 5 minutes | backoff-min: -1s | backoff-factor: 0 |
        check-interval: x""",
    "master": """
        rpc-timeout: 0 | rpc-timeout: 1.5s | rpc-timeout: soon | log-level: loud | openapi: x | max-txn-ops: x |
        quota-backend-bytes: 2 GiBs | auto-compaction-mode: never | initial-cluster-state: old | peer-url: x |
        ssl-ca: c | ssl-cert: c | ssl-key: c | cert-allowed-cn: [a] | cert-allowed-cn: a | cert-allowed-cn: [''] |
        etcd-ssl-cert: c | etcd-ssl-key: c | etcd: ['https://h:1'] | etcd: ['ftp://h:1'] | etcd: ['http://h']""",
    "worker": """
        keepalive-ttl: 0 | relay-keepalive-ttl: x | drain-seconds: 0s | relay-dir: '' | log-format: xml |
        spark: {a: b} | ssl-key: c | cert-allowed-cn: [a]""",
}


def cases(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(block, entry.strip()) for block, text in table.items() for entry in text.split("|")]


def checked(block: str, entry: str) -> Checked:
    """A whole file that says ``entry`` in a block."""
    said = BLOCKS[block].format(entry)
    if block in ("master", "worker"):
        return check_text(said, "f.yaml", FileKind(block))
    if block in ("source", "from", "purge", "checker"):
        key = said.partition(":")[0]
        base = SOURCE if key != "from" else "source-id: a\n"
        lines = [line for line in base.splitlines() if not line.startswith(f"{key}:")]
        if key == "purge":
            lines.remove("  expires: 24")
        return check_text("\n".join(lines) + "\n" + said, "f.yaml", FileKind.SOURCE)
    text = TASK
    if block in ("instance", "mydumper", "loader", "syncer"):
        text = text.replace("  - source-id: mysql-02\n", f"  - source-id: mysql-02\n{said}")
        return check_text(text, "f.yaml", FileKind.TASK)
    if block == "validator":
        text = text.replace("  - source-id: mysql-02\n", "  - source-id: mysql-02\n    validator-config-name: global\n")
    if block in ("target", "security"):
        head, _, rest = text.partition("target-database:")
        text = head + rest[rest.index("mysql-instances") :]
    parts = said.split(", shard") if entry.startswith("strict") else [said]
    for part in parts:
        line = part if part.startswith(("strict", "target", "valid")) or part == said else f"shard{part}"
        key = line.partition(":")[0]
        text = (
            "".join(f"{each}\n" for each in text.splitlines() if not each.startswith(f"{key}:")) + line.strip() + "\n"
        )
    return check_text(text, "f.yaml", FileKind.TASK)


def key_of(entry: str) -> str:
    return entry.partition(":")[0]


@pytest.mark.parametrize(("block", "entry"), cases(SUPPORTED))
def test_supported(block: str, entry: str) -> None:
    result = checked(block, entry)
    assert not result.findings
    assert not [note for note in result.notes if key_of(entry) in note.text.partition(": ")[0]]


@pytest.mark.parametrize(("block", "entry"), cases(NOTED))
def test_noted(block: str, entry: str) -> None:
    result = checked(block, entry)
    assert not result.findings
    path = "experimental.openapi" if entry.startswith("experimental") else key_of(entry)
    note = next(note.text for note in result.notes if note.text.partition(": ")[0].endswith(path))
    assert len(note.partition(": ")[2]) >= len("no effect")


@pytest.mark.parametrize(("block", "entry"), cases(REFUSED))
def test_refused(block: str, entry: str) -> None:
    [found] = checked(block, entry).findings
    assert found.spec is errors.config.NOT_SUPPORTED
    assert found.key.endswith(key_of(entry))
    assert found.line
    assert "yet" not in found.message.split()
    assert len(found.message) > 30


@pytest.mark.parametrize(("block", "entry"), cases(WRONG))
def test_wrong_values_have_a_place(block: str, entry: str) -> None:
    findings = checked(block, entry).findings
    assert findings
    found = findings[0]
    assert found.spec is errors.config.INVALID
    assert key_of(entry).removesuffix("s") in found.key
    assert found.line and found.column


@pytest.mark.parametrize(("block", "path"), [("target", "target-database.session"), ("from", "from.session")])
def test_session_variables_of_the_program_are_noted(block: str, path: str) -> None:
    result = checked(block, "session: {SQL_MODE: ANSI_QUOTES, wait_timeout: 5, foreign_key_checks: 1}")
    assert not result.findings
    told = [note.text for note in result.notes if ".session" in note.text]
    said = "no effect: the program itself sets what copied values depend on"
    assert told == [f"{path}.SQL_MODE: {said}", f"{path}.foreign_key_checks: {said}"]


def test_notes_are_in_the_order_of_the_file() -> None:
    result = checked("instance", "meta: {binlog-name: a.000001}\n    loader-thread: 4")
    assert {"meta", "mysql-instances[1].loader-thread"} <= {note.text.partition(": ")[0] for note in result.notes}
    lines = [note.line for note in result.notes]
    assert lines == sorted(lines)


def test_what_is_refused_has_no_note_beside_it() -> None:
    result = checked("mydumper", "chunk-filesize: 64, extra-args: '-T a.b'")
    [found] = result.findings
    assert "-T is refused" in found.message
    keys = {note.text.partition(": ")[0] for note in result.notes}
    assert found.key not in keys
    assert "mysql-instances[1].mydumper.chunk-filesize" in keys


def test_validators_and_checkers_are_noted_as_a_whole() -> None:
    for block, entry, key in (
        ("validator", "mode: full, row-error-delay: 30m, max-pending-row-size: 500m", "validators"),
        ("checker", "check-enable: true, backoff-max: 5m0s, backoff-factor: 2, backoff-jitter: true", "checker"),
    ):
        result = checked(block, entry)
        assert not result.findings
        assert key in {note.text.partition(": ")[0] for note in result.notes}
