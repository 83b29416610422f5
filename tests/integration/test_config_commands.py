"""Tests `config …` against real masters and etcd, with fake workers: list, export, import."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardmerge.master.server import Master
from shardmerge.master.settings import MasterSettings
from shardmerge.proto import common_pb2, etcd_keys
from shardmerge.proto import state_pb2 as state
from shardmerge.proto import worker_pb2 as worker
from shardmerge.proto.config.daemon.daemon_file import parse_master, shown
from tests.integration.fake_worker import FakeWorker
from tests.support.etcd import Etcd
from tests.support.ports import free_port
from tests.support.wait import until

pytestmark = pytest.mark.turns

DMCTL = Path(sys.executable).parent / "dmctl"
ODD = "sträße-例 1"
SOURCES = {
    "mysql-01": 'source-id: mysql-01\nfrom: {host: h, port: 3306, user: dm, password: "s3cret: #1"}  # plain\n',
    ODD: f'source-id: "{ODD}"\nfrom:\n  host: h\n  port: 3307\n  user: dm\n  password: "${{DM_SOURCE_PASSWORD}}"\n',
}
TASK = f"""\
# merged
name: merge
task-mode: incremental
target-database: {{host: h, port: 4000, user: u, password: 'it''s s3cret'}}
mysql-instances:
  - source-id: mysql-01
    meta: {{start-at: earliest}}
  - source-id: "{ODD}"
"""


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


class Cluster:
    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.etcd = Etcd(folder / "etcd").start()
        self.address = f"127.0.0.1:{free_port()}"
        told = shown(parse_master("log-level: warn\n", "m.yaml", {"name": "m1", "master-addr": self.address}))
        # Short: the path of a socket is limited to 107 bytes.
        self.runtime = Path(tempfile.mkdtemp(prefix="sm-"))
        self.socket = f"unix:{self.runtime}/m1.sock"
        self.master = Master(
            MasterSettings(
                "m1",
                self.address,
                self.address,
                (self.etcd.endpoint,),
                300.0,
                300.0,
                5.0,
                shown=told,
                socket=self.socket.removeprefix("unix:"),
            )
        ).start()
        until(lambda: self.master.leads, "a master leads")
        self.workers = [FakeWorker(f"w{number}", self.etcd.endpoint, ttl=300.0).start() for number in range(workers)]

    def close(self) -> None:
        self.master.stop()
        for one in self.workers:
            one.stop()
        self.etcd.stop()
        shutil.rmtree(self.runtime)

    def dmctl(self, *arguments: str) -> Ran:
        done = subprocess.run(
            [DMCTL, "--master-addr", self.address, "--output", "table", *arguments],
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def done(self, *arguments: str) -> str:
        ran = self.dmctl(*arguments)
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.out

    def exported(self, folder: Path) -> str:
        """Run `config export` over the Unix socket, because the export contains passwords."""
        return self.done("--master-addr", self.socket, "config", "export", "-p", str(folder))

    def subtask(self, source: str) -> state.SubTaskRecord:
        with self.etcd.client() as client:
            record = client.get(etcd_keys.subtask("merge", source))
        assert record is not None
        return etcd_keys.decode(state.SubTaskRecord, record.value, record.key)

    def count(self, folder: str) -> int:
        with self.etcd.client() as client:
            return len(client.get_prefix(folder).records)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Cluster]]:
    monkeypatch.setenv("DM_SOURCE_PASSWORD", "p")
    with ExitStack() as open_ones:

        def make(workers: int = 2) -> Cluster:
            made = Cluster(tmp_path / f"cluster-{len(list(tmp_path.iterdir()))}", workers)
            open_ones.callback(made.close)
            return made

        yield make


def _filled(made: Cluster, folder: Path) -> Cluster:
    """Create two sources; the task replicates from one, with another start than in its file, and is paused at the
    other."""
    for number, text in enumerate(SOURCES.values()):
        (folder / f"s{number}.yaml").write_text(text, encoding="utf-8")
    (folder / "t.yaml").write_text(TASK, encoding="utf-8")
    made.done("operate-source", "create", str(folder / "s0.yaml"), str(folder / "s1.yaml"))
    made.done("start-task", str(folder / "t.yaml"), "-s", "mysql-01", "--start-time", "2026-01-02 03:04:05")
    made.done("start-task", str(folder / "t.yaml"), "-s", ODD)
    made.done("pause-task", "merge", "-s", ODD)
    return made


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_export_import_export_is_the_same(cluster: Callable[[], Cluster], tmp_path: Path) -> None:
    here, there = _filled(cluster(), tmp_path), cluster()
    first, second = tmp_path / "first", tmp_path / "second"
    said = here.exported(first)
    assert "2 sources and 1 tasks written to" in said
    assert "2 of the files hold passwords in plain text" in said
    assert (first / "tasks" / "merge.yaml").read_text(encoding="utf-8") == TASK
    said = there.done("config", "import", "--dir", str(first))
    assert f"task merge on {ODD}: is there, paused" in said
    there.exported(second)
    assert _contents(second) == _contents(first)
    assert there.subtask("mysql-01").config == here.subtask("mysql-01").config
    assert there.subtask("mysql-01").config.start_at.time == "2026-01-02 03:04:05"
    assert there.subtask(ODD).expected == common_pb2.STAGE_PAUSED
    # A second import changes nothing.
    assert there.done("config", "import", "-p", str(first)).count("is there already") == 4


def test_a_refused_import_leaves_nothing(cluster: Callable[[], Cluster], tmp_path: Path) -> None:
    here, there = _filled(cluster(), tmp_path), cluster()
    here.exported(tmp_path / "c")
    failing = worker.CheckResult(name="binlog_format", state=worker.CHECK_STATE_FAIL, error_msg="is STATEMENT", code=1)
    for one in there.workers:
        one.behaviour.subtask_results = [failing]
    ran = there.dmctl("config", "import", "-p", str(tmp_path / "c"))
    assert ran.code == 1
    assert "[80020 import-failed]" in ran.err
    assert "binlog_format: is STATEMENT" in ran.err
    assert "what was created was removed" in ran.err
    assert ran.out == ""
    assert there.count(etcd_keys.SOURCES) == 0
    assert there.count(etcd_keys.TASKS) == 0


def test_a_missing_variable_is_found_before_anything_is_done(
    cluster: Callable[[], Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = _filled(cluster(), tmp_path), cluster()
    here.exported(tmp_path / "c")
    monkeypatch.delenv("DM_SOURCE_PASSWORD")
    ran = there.dmctl("config", "import", "-p", str(tmp_path / "c"))
    assert "DM_SOURCE_PASSWORD is not set" in ran.err
    assert there.count(etcd_keys.SOURCES) == 0


def test_another_file_under_a_known_name_is_refused(cluster: Callable[[], Cluster], tmp_path: Path) -> None:
    here = _filled(cluster(), tmp_path)
    here.exported(tmp_path / "c")
    changed = tmp_path / "c" / "sources" / "mysql-01.yaml"
    changed.write_text(SOURCES["mysql-01"].replace("3306", "3999"), encoding="utf-8")
    ran = here.dmctl("config", "import", "-p", str(tmp_path / "c"))
    assert "[80019 import-differs]" in ran.err


def test_what_is_stored_is_shown(cluster: Callable[[], Cluster], tmp_path: Path) -> None:
    here = _filled(cluster(), tmp_path)
    masked = TASK.replace("'it''s s3cret'", '"******"')
    for arguments in (
        ("config", "task", "merge"),
        ("config", "task", str(tmp_path / "t.yaml")),
        ("get-config", "task", "merge"),
        ("get-task-config", "task", "merge"),
        ("config", "task-template", "merge"),
    ):
        assert here.done(*arguments) == masked
    answer = json.loads(here.done("--output", "json", "config", "task", "merge"))
    assert answer == {"result": True, "msg": "", "cfg": masked}
    assert here.done("config", "source", ODD) == SOURCES[ODD]
    assert '"******"' in here.done("config", "source", "mysql-01")
    assert here.done("config", "task") == "merge\n"
    assert here.done("config", "source").splitlines() == ["mysql-01", ODD]
    assert here.done("config", "master").splitlines() == ["m1"]
    assert parse_master(here.done("config", "master", "m1"), "m").log_level == "warn"
    file = tmp_path / "shown.yaml"
    here.done("get-config", "task", "merge", "--file", str(file))
    assert file.read_text(encoding="utf-8") == masked
    assert file.stat().st_mode & 0o777 == 0o600
    ran = here.dmctl("config", "source", "nope")
    assert (ran.code, "[60202 source-unknown]" in ran.err) == (1, True)
    ran = here.dmctl("config", "worker", "w0")
    assert "[60402 config-not-kept]" in ran.err, "a worker of a version that tells nothing of its settings"
    ran = here.dmctl("config", "task", "merge", "-p", str(tmp_path / "no" / "dir"))
    assert "[80021 file-not-written]" in ran.err


def test_a_template_is_a_task_file_and_stubs_are_the_commands_they_stand_for(
    cluster: Callable[[], Cluster], tmp_path: Path
) -> None:
    here = _filled(cluster(), tmp_path)
    sample = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "task.yaml"
    assert here.done("config", "task-template") == sample.read_text(encoding="utf-8")
    (tmp_path / "nope.yaml").write_text(TASK.replace("name: merge", "name: nope"), encoding="utf-8")
    ran = here.dmctl("config", "task", "update", str(tmp_path / "nope.yaml"))
    assert "[60302 task-unknown]" in ran.err
    first, second = here.dmctl("config", "source", "update", "x.yaml"), here.dmctl("operate-source", "update", "x.yaml")
    assert (first.code, first.err) == (second.code, second.err)


def test_rules_asks_any_worker_and_names_what_is_wrong(cluster: Callable[[], Cluster], tmp_path: Path) -> None:
    here = _filled(cluster(), tmp_path)
    answer = json.loads(here.done("--output", "json", "rules", "merge", "shop.cart", "-s", ODD))
    assert [(part["source"], part["tables"][0]["table"]) for part in answer["sources"]] == [(ODD, "cart")]
    for arguments, code in (
        (("rules", "nope"), "60302 task-unknown"),
        (("rules", "merge", "-s", "x"), "60303 subtask-unknown"),
        (("rules", str(tmp_path / "t.yaml"), "-s", "x"), "60304 source-not-in-task"),
        (("rules", "merge", "cart"), "80022 table-name"),
    ):
        ran = here.dmctl(*arguments)
        assert (ran.code, f"[{code}]" in ran.err) == (1, True), ran.err
    unknown = tmp_path / "u.yaml"
    unknown.write_text(TASK.replace("mysql-01", "mysql-09"), encoding="utf-8")
    ran = here.dmctl("rules", str(unknown))
    assert "60202 source-unknown" in ran.err
