"""Start a task and follow it until every subtask is in sync, through dm-master's gRPC interface.

    python docs/example_client.py 127.0.0.1:8261 task.yaml merge_orders

Needs the `shardmerge` package (its `proto` folder) and a running dm-master.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc

from shardmerge.proto import common_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc import client
from shardmerge.proto.worker_pb2 import SubTaskStatus


def start(master: MasterStub, path: Path) -> list[str]:
    """Start the task of this file; the sources that could not start, each with the reason."""
    file = pb.ConfigFile(name=str(path), content=path.read_text(encoding="utf-8"))
    answer = master.StartTask(pb.StartTaskRequest(file=file), timeout=600)
    failures = [
        f"{part.source}: [{part.error.code}] {part.error.message}" for part in answer.sources if not part.result
    ]
    if not answer.result and not failures:
        failures.append(answer.msg)
    return failures


def follow(master: MasterStub, task: str, seconds: float = 1.0) -> Iterator[list[SubTaskStatus]]:
    """The subtasks of the task, again and again."""
    while True:
        answer = master.QueryStatus(pb.QueryStatusRequest(name=task), timeout=30)
        yield [subtask for source in answer.sources for subtask in source.sub_task_status]
        time.sleep(seconds)


def main(address: str, path: Path, task: str) -> int:
    """0 once all subtasks are in sync, 1 if one stops with an error."""
    with client.channel(address) as channel:
        master = MasterStub(channel)
        try:
            failures = start(master, path)
            if failures:
                print("not started:", *failures, sep="\n  ")
                return 1
            for subtasks in follow(master, task):
                for subtask in subtasks:
                    if subtask.HasField("load"):
                        print(
                            f"{subtask.name}: snapshot {subtask.load.finished_rows} of {subtask.load.total_rows} rows"
                        )
                    elif subtask.HasField("sync"):
                        print(f"{subtask.name}: replicating, {subtask.sync.bytes_behind} bytes behind")
                    for error in subtask.result.errors:
                        if subtask.stage == common_pb2.STAGE_PAUSED and not error.retryable:
                            print(f"{subtask.name}: [{error.code} {error.name}] {error.message}\n  {error.workaround}")
                            return 1
                if subtasks and all(subtask.sync.synced for subtask in subtasks):
                    print("in sync")
                    return 0
        except grpc.RpcError as failure:
            coded = client.coded_from_rpc(failure, f"master ({address})")
            print(f"{coded}\n  {coded.workaround}")
            return 1
    return 1


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: example_client.py <master address> <task file> <task name>")
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
