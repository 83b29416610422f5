"""Tests the interactive prompt on a terminal, and the completion that shells request."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from shardmerge.ctl.main import dmctl
from shardmerge.ctl.options import Line
from shardmerge.ctl.shell.completion import SHELLS
from shardmerge.ctl.shell.prompt import history_path, is_secret
from shardmerge.proto import master_pb2 as pb
from tests.support.canned_master import CannedMaster
from tests.support.ports import free_port
from tests.support.terminal import Terminal
from tests.support.wait import until

DMCTL = Path(sys.executable).parent / "dmctl"
_Kind = pb.GetConfigRequest
NAMES = {
    _Kind.KIND_TASK: ["merge", "sträße 1"],
    _Kind.KIND_SOURCE: ["mysql-01", "mysql-02"],
    _Kind.KIND_WORKER: ["w1"],
    _Kind.KIND_MASTER: ["m1"],
}
MEMBERS = pb.ListMemberResponse(result=True, workers=[pb.WorkerMember(name="w1", stage="free")])


@pytest.fixture
def master() -> Iterator[CannedMaster]:
    def names(request: pb.GetConfigRequest) -> pb.GetConfigResponse:
        assert request.names_only
        return pb.GetConfigResponse(result=True, configs=[pb.StoredConfig(name=name) for name in NAMES[request.kind]])

    server = CannedMaster().answer("GetConfig", names).answer("ListMember", MEMBERS)
    yield server
    server.stop()


def _environment(home: Path, address: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("XDG_STATE_HOME", "NO_COLOR", "COLUMNS")}
    return {
        **kept, "HOME": str(home), "DM_MASTER_ADDR": address, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1",
    }  # fmt: skip


@pytest.fixture
def patient(tmp_path: Path) -> Path:
    """Provide a dmctl that waits for names without a limit: the master of a test may be slow, and dmctl completes no
    names that arrive too late."""
    program = tmp_path / "patient" / "dmctl"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nfrom shardmerge.ctl import main\nfrom shardmerge.ctl.shell import completion\n"
        "completion._SECONDS = 300.0\nmain.main()\n"
    )
    program.chmod(0o755)
    return program


class Prompt(Terminal):
    """dmctl's prompt on a terminal."""

    def __init__(self, home: Path, address: str, *arguments: str, program: Path = DMCTL) -> None:
        super().__init__([program, *arguments], _environment(home, address), home)

    def ready(self) -> None:
        """Wait for a new prompt: keys that are typed before it go to the terminal, not to the prompt."""
        until(lambda: _plain(self.read()).rstrip().endswith("dmctl»"), "the prompt waits")

    def line_is(self, line: str) -> None:
        """Wait for a line. The prompt draws only changes: request the whole line (Ctrl-L) repeatedly."""

        def drawn() -> bool:
            self.type("\x0c")
            return _plain(self.read()).rpartition("dmctl»")[2].partition("\n")[0].strip() == line

        try:
            until(drawn, f"the prompt's line is {line!r}", every=0.3)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text[-500:]!r}") from None


def _plain(text: str) -> str:
    """Remove the control sequences of the terminal; a cursor movement becomes blanks."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", re.sub(r"\x1b\[\d*[CD]", " ", text.replace("\r", "\n")))


# --- the prompt


def test_commands_one_after_the_other(master: CannedMaster, tmp_path: Path) -> None:
    terminal = Prompt(tmp_path, master.address)
    terminal.shows("Tab completes")
    terminal.ready()
    terminal.press("list-member --worker\r")
    terminal.shows("w1", "free")
    terminal.ready()
    terminal.press("dmctl no-such\r")
    terminal.shows("[80001 usage]")
    terminal.ready()
    terminal.press("help rules\r")
    terminal.shows("Example:")
    terminal.ready()
    terminal.press('config task "half\r')
    terminal.shows("no closing quotation")
    terminal.ready()
    terminal.press("--output json\r")
    terminal.shows("Usage:")
    terminal.ready()
    terminal.press("exit\r")
    assert terminal.end() == 0


def test_options_in_front_hold_for_every_line(master: CannedMaster, tmp_path: Path) -> None:
    terminal = Prompt(tmp_path, "127.0.0.1:1", "-master-addr", master.address, "--output", "json")
    terminal.ready()
    for _ in range(2):
        terminal.press("list-member\r")
        terminal.shows('"stage": "free"')
        terminal.ready()
    terminal.press("\x04")
    assert terminal.end() == 0


def test_ctrl_c_drops_the_line_and_ends_what_runs(master: CannedMaster, tmp_path: Path) -> None:
    asked, let_go = threading.Event(), threading.Event()

    def waits(request: pb.ListMemberRequest) -> pb.ListMemberResponse:
        asked.set()
        let_go.wait(300)
        return MEMBERS

    master.answer("ListMember", waits)
    terminal = Prompt(tmp_path, master.address)
    terminal.ready()
    terminal.press("stop-task merge")
    terminal.line_is("stop-task merge")
    terminal.press("\x03")
    terminal.ready()
    terminal.press("list-member\r")
    assert asked.wait(300)
    terminal.process.send_signal(signal.SIGINT)
    terminal.shows("[80014 interrupted]")
    terminal.ready()
    let_go.set()
    assert [type(request) for request in master.requests] == [pb.ListMemberRequest]
    terminal.press("quit\r")
    assert terminal.end() == 0


def test_tab_completes_commands_options_names_and_files(master: CannedMaster, tmp_path: Path, patient: Path) -> None:
    (tmp_path / "zebra.yaml").write_text("name: z\n")
    terminal = Prompt(tmp_path, master.address, program=patient)
    terminal.ready()
    for keys, whole in (
        ("list-m\t", "list-member"),
        ("query-status mer\t", "query-status merge"),
        ("query-status --mor\t", "query-status --more"),
        ("query-status -s mysql-01,mysql-0\t", "query-status -s mysql-01,mysql-02"),
        ("check-task zeb\t", "check-task zebra.yaml"),
        ("config worker w\t", "config worker w1"),
        ("config task str\t", "config task 'sträße 1'"),
        ("-s mysql-01 pause-ta\t", "-s mysql-01 pause-task"),
    ):
        terminal.press(keys)
        terminal.line_is(whole)
        terminal.press("\x03")
        terminal.ready()
    terminal.press("\x04")
    assert terminal.end() == 0


def test_history_is_private_and_without_secrets(master: CannedMaster, tmp_path: Path) -> None:
    for line in ("list-member --worker", "encrypt s3cret", "--output json encrypt s3cret"):
        terminal = Prompt(tmp_path, master.address)
        terminal.ready()
        terminal.press(f"{line}\r")
        terminal.ready()
        terminal.press("\x04")
        assert terminal.end() == 0
    file = tmp_path / ".local" / "state" / "shardmerge" / "dmctl_history"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert "list-member --worker" in file.read_text()
    assert "s3cret" not in file.read_text()
    terminal = Prompt(tmp_path, master.address)
    terminal.ready()
    terminal.press("\x1b[A")
    terminal.line_is("list-member --worker")
    terminal.press("\x03\x04")
    assert terminal.end() == 0


def test_what_is_a_secret_and_where_history_lives(tmp_path: Path) -> None:
    assert is_secret("binlog replace m \"CREATE USER x IDENTIFIED  BY 'y'\" -s s")
    assert not is_secret("query-status merge")
    assert history_path({"XDG_STATE_HOME": "/s"}, tmp_path) == Path("/s/shardmerge/dmctl_history")
    assert history_path({"XDG_STATE_HOME": "relative"}, tmp_path) == history_path({}, tmp_path)


def test_without_a_terminal_there_is_no_prompt(tmp_path: Path) -> None:
    done = subprocess.run(
        [DMCTL], env=_environment(tmp_path, "127.0.0.1:1"), input="exit\n", capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.stdout.startswith("Usage: dmctl")
    assert done.returncode == 0


# --- the shells


def _offered(monkeypatch: pytest.MonkeyPatch, address: str, *words: str) -> list[tuple[str, str]]:
    monkeypatch.setenv("DM_MASTER_ADDR", address)
    monkeypatch.setattr("shardmerge.ctl.shell.completion._SECONDS", 300.0)
    *before, begun = words
    found = ShellComplete(dmctl, {"obj": Line()}, "dmctl", "").get_completions(before, begun)
    return [(item.type, str(item.value)) for item in found]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("start-t",), [("plain", "start-task")]),
        (("query-status", "m"), [("file", "m"), ("plain", "merge")]),
        (("config", "task", "m"), [("file", "m"), ("plain", "merge")]),
        (("config", "source", "mysql-02"), [("plain", "mysql-02")]),
        (("config", "worker", ""), [("plain", "w1")]),
        (("config", "master", ""), [("plain", "m1")]),
        (("config", "export", "--path", "c"), [("dir", "c")]),
        (("shard-ddl-lock", "unl"), [("plain", "unlock"), ("file", "unl")]),
        (("shard-ddl-lock", "unlock", ""), []),
        (("query-status", "-s", "mysql-01,mysql-02"), [("plain", "mysql-01,mysql-02")]),
        (("operate-source", "create", "x.yaml", "-w", ""), [("plain", "w1")]),
        (("binlog", "skip", "merge", "-b", ""), []),
        (("start-task", ""), [("file", "")]),
    ],
)
def test_what_is_offered(
    master: CannedMaster, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], offered: list[tuple[str, str]]
) -> None:
    assert _offered(monkeypatch, master.address, *words) == offered


def test_without_a_master_there_are_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _offered(monkeypatch, f"127.0.0.1:{free_port()}", "query-status", "m") == [("file", "m")]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [DMCTL, "completion", shell],
        env=_environment(tmp_path, ""),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_DMCTL_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes(master: CannedMaster, tmp_path: Path, patient: Path) -> None:
    script = (
        f'PATH="{patient.parent}:$PATH"; source <(dmctl completion bash); '
        "complete() { :; }; compopt() { :; }; "
        'for line in "dmctl query-status mer" "dmctl config task str" "dmctl nope x"; do '
        "COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); "
        '_dmctl_completion dmctl; printf "%s\\n" "${COMPREPLY[@]}"; done'
    )
    done = subprocess.run(
        ["bash", "-c", script], env=_environment(tmp_path, master.address), capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["merge", "sträße\\ 1", ""], done.stderr
    assert done.stderr == ""
