"""The commands of dmctl: where each is, and its line in `dmctl --help`.

A command's module is imported when the command is used: importing all of them takes longer than most commands run.
"""

from __future__ import annotations

import importlib
from collections import UserDict

import click

from shardmerge.ctl.shell import completion


class Listed(click.Command):
    """A command whose module is not imported yet: what lists of commands show."""

    def __init__(self, name: str, module: str, short_help: str = "", *, hidden: bool = False) -> None:
        """``module``: in shardmerge.ctl.commands; the command there has the same name, with underscores."""
        super().__init__(name, short_help=short_help, hidden=hidden)
        self.module = module


class LazyCommands(UserDict[str, click.Command]):
    """Commands by name. ``data`` lists them; reading one imports it."""

    def __getitem__(self, name: str) -> click.Command:
        found = self.data[name]
        if isinstance(found, Listed):
            module = importlib.import_module(f"shardmerge.ctl.commands.{found.module}")
            command: click.Command = getattr(module, name.replace("-", "_"))
            command.short_help, command.hidden = found.short_help, found.hidden
            completion.attach(command)
            self.data[name] = command
        return self.data[name]


COMMANDS = LazyCommands(
    (command.name or "", command)
    for command in (
        Listed("operate-source", "source.operate_source", "create, update, show or stop sources"),
        Listed("transfer-source", "source.transfer_source", "move a source to another worker"),
        Listed("check-task", "task.operate_task", "run a task file's pre-checks"),
        Listed("rules", "task.rules", "where each table's rows go, and why"),
        Listed("schema", "task.schema", "the target tables, and how the shard tables differ"),
        Listed("check-config", "local.check_config", "check configuration files without a server"),
        Listed("encrypt", "local.encrypt", "encrypt a password for a file"),
        Listed("tls", "local.tls", "make certificates for a cluster"),
        Listed("start-task", "task.operate_task", "check a task file and start the task"),
        Listed("update-task", "task.update_task", "replace a running task's file"),
        Listed("query-status", "task.query_status", "show the state of tasks, once or live"),
        Listed("history", "task.history", "show what happened to a task"),
        Listed("why", "task.diagnosis.why", "show why a task is slow or makes no progress, and what to do"),
        Listed("top", "task.diagnosis.top", "show all tasks live, the worst first"),
        Listed("compare", "task.compare", "compare the target with the shard tables, row by row"),
        Listed("decode-id", "local.decode_id", "find the shard table of a merged id"),
        Listed("pause-task", "task.operate_task", "pause a task"),
        Listed("resume-task", "task.operate_task", "resume a paused task"),
        Listed("stop-task", "task.operate_task", "stop a task and forget it"),
        Listed("list-member", "cluster.members", "show masters and workers"),
        Listed("operate-leader", "cluster.members", "let another master lead"),
        Listed("offline-member", "cluster.members", "forget a worker that will not come back"),
        Listed("binlog", "task.binlog", "skip or replace a statement that stops a task"),
        Listed("handle-error", "task.binlog", hidden=True),
        Listed("binlog-schema", "task.binlog_schema", "the recorded structure of a shard table"),
        Listed("operate-schema", "task.binlog_schema", hidden=True),
        Listed("quarantine", "task.quarantine", "rows that the target refused"),
        Listed("start-relay", "source.operate_relay", "nothing to do: the relay log is always on"),
        Listed("stop-relay", "source.operate_relay", "refused, with what to use instead"),
        Listed("pause-relay", "source.operate_relay", "fetch nothing more from sources"),
        Listed("resume-relay", "source.operate_relay", "fetch from sources again"),
        Listed("purge-relay", "source.operate_relay", "remove old relay log files"),
        Listed("shard-ddl", "task.shard_ddl", "dry run of a DDL on shard tables"),
        Listed("shard-ddl-lock", "task.shard_ddl_lock", "show the locks of sharding DDLs, or decide about one"),
        Listed("show-ddl-locks", "task.shard_ddl_lock", "show the locks of sharding DDLs", hidden=True),
        Listed("unlock-ddl-lock", "task.shard_ddl_lock", "decide about a lock", hidden=True),
        Listed("config", "cluster.config", "show, export and import configurations"),
        Listed("get-config", "cluster.config", hidden=True),
        Listed(
            "support-bundle", "cluster.support_bundle", "write one file that describes the cluster, without secrets"
        ),
        Listed("completion", "local.completion", "print the script that completes commands in a shell"),
        Listed("help", "local.help", "show the help of a command"),
        Listed("get-task-config", "cluster.config", hidden=True),
    )
)
"""Every command of dmctl; help and reference sort them."""
