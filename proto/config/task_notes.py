"""What accepted keys of DM's task file do here when that is not what they do in DM."""

from __future__ import annotations

from collections.abc import Mapping

from proto.config.note import ANY, NotePath

_MYDUMPER = {
    "mydumper-path": "no effect: no program is called",
    "chunk-filesize": "no effect: chunks are cut by rows (snapshot.chunk-rows)",
    "statement-size": "no effect: a statement is as large as the target takes",
    "skip-tz-utc": "no effect: both sides always speak UTC",
    "extra-args": "no effect: the snapshot takes no locks and needs no option",
}
_LOADER = {
    "pool-size": "no effect: the snapshot's threads both read and load",
    "dir": "no effect: rows do not pass through files",
    "import-mode": "no effect: rows are loaded by multi-row INSERT",
    "on-duplicate": "no effect: a duplicate row always stops the task with an error",
    "on-duplicate-logical": "no effect: a duplicate row always stops the task with an error",
    "on-duplicate-physical": "no effect: a duplicate row always stops the task with an error",
    "sorting-dir-physical": "no effect",
    "disk-quota-physical": "no effect",
    "checksum-physical": "no effect",
    "analyze": "no effect: run ANALYZE TABLE at the target when the load is done",
    "range-concurrency": "no effect",
    "compress-kv-pairs": "no effect",
    "pd-addr": "no effect",
}
_SYNCER = {
    "worker-count": "upper bound of the lanes, of which there are at most 4; replicate.lanes sets them exactly",
    "batch": "upper bound of rows in one target transaction; replicate.batch-rows wins over it",
    "meta-file": "no effect: checkpoints live in the target's meta schema",
    "queue-size": "no effect: lanes read the relay log at their own pace",
    "checkpoint-flush-interval": "no effect: rows and checkpoint commit together",
    "compact": "no effect: changes of a key are always compacted within a batch",
    "multiple-rows": "no effect: statements always carry many rows",
    "max-retry": "no effect: whether to retry is said by the error",
    "auto-fix-gtid": "no effect",
    "enable-gtid": "no effect: it is a key of the source",
    "disable-detect": "no effect",
    "safe-mode-duration": "no effect: a restart repeats nothing",
    "enable-ansi-quotes": "no effect",
}
_OPTIMISTIC = "no effect: shard-mode: optimistic is always strict: a shard table waits where values could differ"
_ONLINE_DDL_SCHEME = "tables of both tools are known by shadow-table-rules and trash-table-rules, whichever it is"
_HEARTBEAT = "no effect: lag needs no heartbeat table"
_VALIDATOR = "no effect: continuous validation is missing"


def _blocks(top: str, inline: str, notes: Mapping[str, str]) -> dict[NotePath, str]:
    """The notes of a named block and of the same block written inside an instance."""
    named: dict[NotePath, str] = {(top, ANY, key): text for key, text in notes.items()}
    inside: dict[NotePath, str] = {("mysql-instances", ANY, inline, key): text for key, text in notes.items()}
    return {**named, **inside}


TASK_NOTES: Mapping[NotePath, str] = {
    ("strict-optimistic-shard-mode",): _OPTIMISTIC,
    ("timezone",): "no effect: both sides always speak UTC",
    ("collation_compatible",): "no effect: columns keep the charset and collation of the source",
    ("mariadb2tidb",): "no effect",
    ("online-ddl-scheme",): _ONLINE_DDL_SCHEME,
    ("clean-dump-file",): "no effect: nothing is dumped to files",
    ("enable-heartbeat",): _HEARTBEAT,
    ("heartbeat-update-interval",): _HEARTBEAT,
    ("heartbeat-report-interval",): _HEARTBEAT,
    ("ansi-quotes",): "no effect",
    ("remove-meta",): "no effect: give start-task --remove-meta",
    ("experimental", "async-checkpoint-flush"): "no effect: rows and checkpoint commit together",
    ("black-white-list",): "old spelling of block-allow-list",
    ("target-database", "max-allowed-packet"): "no effect: the target's own bound is asked",
    ("validators",): _VALIDATOR,
    ("mysql-instances", ANY, "black-white-list"): "old spelling of block-allow-list",
    ("mysql-instances", ANY, "validator-config-name"): _VALIDATOR,
    ("mysql-instances", ANY, "loader-thread"): _LOADER["pool-size"],
    ("mysql-instances", ANY, "syncer-thread"): _SYNCER["worker-count"],
    ("column-mappings", ANY, "create-table-query"): "no effect: the target table is made from the source's",
    **_blocks("mydumpers", "mydumper", _MYDUMPER),
    **_blocks("loaders", "loader", _LOADER),
    **_blocks("syncers", "syncer", _SYNCER),
}
