"""Start a task and follow it until every subtask is in sync, through dm-master's gRPC interface.

    python docs/example_client.py 127.0.0.1:8261 task.yaml merge_orders

Needs the `shardmerge` package (its `proto` folder) and a running dm-master.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc

from shardmerge.proto import common_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc import caller_proof, client
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


def follow(master: MasterStub, task: str, seconds: float = 1.0) -> Iterator[pb.QueryStatusResponse]:
    """The status of the task, again and again."""
    while True:
        yield master.QueryStatus(pb.QueryStatusRequest(name=task), timeout=30)
        time.sleep(seconds)


def is_in_sync(answer: pb.QueryStatusResponse) -> bool:
    """Whether every source has answered without an error, and every subtask runs and is in sync, or has finished."""
    subtasks = [subtask for source in answer.sources for subtask in source.sub_task_status]
    return (
        answer.result
        and bool(subtasks)
        and all(source.result and not source.source_status.relay_status.HasField("result") for source in answer.sources)
        and all(_is_subtask_in_sync(subtask) for subtask in subtasks)
    )


def _is_subtask_in_sync(subtask: SubTaskStatus) -> bool:
    if subtask.stage == common_pb2.STAGE_FINISHED:  # the task ends by itself, e.g. task-mode full
        return not subtask.result.errors
    running = subtask.stage == common_pb2.STAGE_RUNNING and not subtask.result.errors
    return running and subtask.HasField("sync") and subtask.sync.synced and not subtask.sync.unknown


def describe(subtask: SubTaskStatus) -> str:
    """One line: what the subtask has done, or why that is not known."""
    stage = common_pb2.Stage.Name(subtask.stage).removeprefix("STAGE_").lower()
    if subtask.HasField("load"):
        return f"{subtask.name}: {stage}, snapshot {subtask.load.finished_rows} of {subtask.load.total_rows} rows"
    if not subtask.HasField("sync"):
        return f"{subtask.name}: {stage}"
    if subtask.sync.unknown or subtask.stage != common_pb2.STAGE_RUNNING:
        return f"{subtask.name}: {stage}, progress unknown: {subtask.sync.unknown or 'it does not run'}"
    return f"{subtask.name}: replicating, {subtask.sync.bytes_behind} bytes not applied"


def main(address: str, path: Path, task: str) -> int:
    """0 once all subtasks are in sync, 1 if one stops with an error."""
    caller_proof.use_file("", os.environ)  # the cluster's key, where dm-master of this user has made it
    with client.channel(address) as channel:
        master = MasterStub(channel)
        try:
            failures = start(master, path)
            if failures:
                print("not started:", *failures, sep="\n  ")
                return 1
            for answer in follow(master, task):
                for source in answer.sources:
                    if not source.result:
                        print(f"{source.source_status.source}: not known: {source.error.message or source.msg}")
                    for subtask in source.sub_task_status:
                        print(describe(subtask))
                        for error in subtask.result.errors:
                            print(f"  [{error.code} {error.name}] {error.message}\n  {error.workaround}")
                            if subtask.stage == common_pb2.STAGE_PAUSED and not error.retryable:
                                return 1
                if is_in_sync(answer):
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
