"""The commented samples are files that are accepted, and say nothing twice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shardmerge.proto.config.daemon.daemon_file import read_daemon
from shardmerge.proto.config.daemon.model import MasterFile, WorkerFile
from shardmerge.proto.config.daemon_flags import flag_names, with_two_dashes
from shardmerge.proto.config.docs.samples import sample_of
from shardmerge.proto.config.source import SourceModel, parse_source_file
from shardmerge.proto.config.task.model import TaskModel
from shardmerge.proto.config.task.task_file import parse_task


def test_samples_are_accepted() -> None:
    environ = {"DM_PASSWORD": "x"}
    assert not parse_source_file(sample_of(SourceModel), "s", environ).notes
    task = parse_task(sample_of(TaskModel), "t", environ)
    assert [note.split(": ", 2)[1] for note in task.notes] == ["syncers.global.worker-count"]
    [subtask] = task.to_subtasks()
    assert subtask.block_allow_list.do_dbs == ["shard_*"]
    assert subtask.target.password == "x"
    for kind in (MasterFile, WorkerFile):
        given = read_daemon(kind, sample_of(kind), "f")
        assert not given.notes
        own = {"name", "advertise_addr", "spark"}
        assert given.model.model_dump(exclude=own) == kind().model_dump(exclude=own)


@pytest.mark.parametrize("module", ["shardmerge.master.main", "shardmerge.worker.daemon.main"])
def test_daemons_print_their_sample_and_version(module: str) -> None:
    kind = MasterFile if module.startswith("shardmerge.master") else WorkerFile
    for argument, expected in (("-print-sample-config", sample_of(kind)), ("-V", "dm-"), ("--version", "dm-")):
        done = subprocess.run([sys.executable, "-m", module, argument], capture_output=True, text=True, check=True)
        assert done.stdout.startswith(expected)


@pytest.mark.parametrize("module", ["shardmerge.master.main", "shardmerge.worker.daemon.main", "shardmerge.ctl.main"])
def test_programs_say_what_is_wrong_in_one_form(module: str) -> None:
    words = [
        sys.executable,
        "-m",
        module,
        "--config",
        "/nowhere.toml",
        *(["list-member"] if module == "shardmerge.ctl.main" else []),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    first, second = done.stderr.splitlines()
    assert first.startswith("error: [")
    assert "/nowhere.toml" in first
    assert second.startswith("       what to do: ")
    assert done.returncode


def test_one_dash_is_enough_for_every_flag() -> None:
    names = flag_names(WorkerFile)
    given = ["-name", "a", "-L=debug", "-L", "info", "--join=x", "-join", "y", "--", "-name"]
    turned = ["--name", "a", "-L=debug", "-L", "info", "--join=x", "--join", "y", "--", "-name"]
    assert with_two_dashes(given, names) == turned
    assert {"keepalive-ttl", "relay-keepalive-ttl", "redact-info-log", "ssl-ca", "log-file"} <= set(names)
    assert "spark" not in names
