"""The commented samples are files that are accepted, and say nothing twice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proto.config.daemon import read_daemon
from proto.config.daemon_model import MasterFile, WorkerFile
from proto.config.flags import flag_names, with_two_dashes
from proto.config.samples import sample_of
from proto.config.source import SourceModel, parse_source_file
from proto.config.task import parse_task
from proto.config.task_model import TaskModel


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


@pytest.mark.parametrize("module", ["master.main", "worker.main"])
def test_daemons_print_their_sample_and_version(module: str) -> None:
    kind = MasterFile if module.startswith("master") else WorkerFile
    for argument, expected in (("-print-sample-config", sample_of(kind)), ("-V", "dm-"), ("--version", "dm-")):
        done = subprocess.run([sys.executable, "-m", module, argument], capture_output=True, text=True, check=True)
        assert done.stdout.startswith(expected)


@pytest.mark.parametrize("module", ["master.main", "worker.main", "ctl.main"])
def test_programs_say_what_is_wrong_in_one_form(module: str) -> None:
    words = [
        sys.executable,
        "-m",
        module,
        "--config",
        "/nowhere.toml",
        *(["list-member"] if module == "ctl.main" else []),
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
