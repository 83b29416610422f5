"""The tests' own tools, as far as they decide anything without a server."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors, failpoints
from shardmerge.proto.config.daemon.daemon_file import parse_worker
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.task_runner import TaskBody, TaskDone, TaskOutcome
from tests.support.cluster import parse_position
from tests.support.daemon import ROOT, to_yaml
from tests.support.hooks import Hooks
from tests.support.judge import PartitionIds
from tests.support.task_runners import ProcessRunner
from tests.support.wait import until


def test_partition_ids_have_the_documented_layout() -> None:
    assert PartitionIds(1, 2, 3)(4) == 1 << 59 | 2 << 52 | 3 << 44 | 4
    assert PartitionIds(15, 127, 255)((1 << 44) - 1) == (1 << 63) - 1


def test_a_part_that_is_not_used_widens_the_id() -> None:
    assert PartitionIds(None, 2, 3)(1 << 47) == 2 << 56 | 3 << 48 | 1 << 47
    assert PartitionIds(None, None, None)((1 << 63) - 1) == (1 << 63) - 1


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="44 bits"):
        PartitionIds(1, 1, 1)(1 << 44)
    with pytest.raises(ValueError, match="4 bits"):
        PartitionIds(16, 1, 1)(1)


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 127), st.integers(0, 255), st.integers(0, 2**44 - 1))))
def test_different_rows_have_different_ids(rows: list[tuple[int, int, int, int]]) -> None:
    merged = {PartitionIds(instance, schema, table)(original) for instance, schema, table, original in rows}
    assert len(merged) == len(set(rows))


def test_positions_are_ordered_by_file_then_byte() -> None:
    assert parse_position("(mysql-bin.000010, 4)") > parse_position("(mysql-bin.000009, 900)") > (0, 0)
    assert parse_position("") == (0, 0)


def test_no_port_is_given_twice_while_its_user_may_still_be_starting() -> None:
    ask = "from tests.support.ports import free_port; print(*(free_port() for _ in range(200)), flush=True); input()"
    askers = [
        subprocess.Popen(
            [sys.executable, "-c", ask], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    given_to = [(asker.stdout or sys.stdin).readline().split() for asker in askers]  # all of them live until now
    for asker in askers:
        asker.communicate("\n", timeout=300)
    assert len({port for ports in given_to for port in ports}) == 600


def test_a_written_configuration_is_read_back() -> None:
    text = to_yaml(
        {
            "name": "worker-1",
            "worker-addr": "127.0.0.1:8262",
            "etcd": ["127.0.0.1:2379", "127.0.0.1:2380"],
            "drain-seconds": 3,
            "spark": {"master": "local[4]", "spark.ui.enabled": "false"},
        }
    )
    file = parse_worker(text, "worker-1.yaml")
    assert (file.name, file.drain_seconds, file.etcd) == ("worker-1", 3, ("127.0.0.1:2379", "127.0.0.1:2380"))
    assert file.spark_settings() == {"spark.master": "local[4]", "spark.ui.enabled": "false"}


def test_a_held_moment_is_reached_once_and_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = Hooks(tmp_path)
    monkeypatch.setenv("SHARDMERGE_HOOKS", moments.environment["SHARDMERGE_HOOKS"])
    failpoints.hit("a.moment")
    moments.hold("a.moment")
    program = threading.Thread(target=failpoints.hit, args=("a.moment",))
    program.start()
    assert moments.reached("a.moment", 10)
    assert program.is_alive()
    moments.release("a.moment")
    until(lambda: not program.is_alive(), "the program goes on")


class _Nothing(TaskBody):
    def __call__(self, index: int) -> TaskOutcome:
        return TaskDone()


def test_tasks_do_not_outlive_the_loss_of_what_starts_them() -> None:
    """As with a JVM that was killed, the process that lost it runs no further task; a new runner does."""
    runner = ProcessRunner()
    assert runner.run("job", 1, _Nothing(), StopSignal()) == [TaskDone()]
    runner.stop()
    until(lambda: runner.lost, "it has noticed")
    with pytest.raises(ShardmergeError) as caught:
        runner.run("job", 1, _Nothing(), StopSignal())
    assert caught.value.spec is errors.worker.SPARK_LOST
    assert runner.lost
    assert runner.free_slots == runner.total_slots
    again = ProcessRunner()
    assert again.run("job", 1, _Nothing(), StopSignal()) == [TaskDone()]
    again.stop()


def test_children_live_after_this_process_has_used_grpc() -> None:
    """gRPC's handlers of fork() would abort some of them: see tests/support/fork_safe_grpc.py."""
    server = grpc.server(ThreadPoolExecutor(2))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(60)
        ended = [subprocess.Popen(["true"], preexec_fn=lambda: None).wait() for _ in range(200)]
    server.stop(None)
    assert set(ended) == {0}
