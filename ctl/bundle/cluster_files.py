"""The files of what a master answers about the whole cluster: members, configurations, status, locks. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.ctl import as_json
from shardmerge.ctl.bundle.contents import BundleFile, Item, NotCollected, json_file, safe_name
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2
from shardmerge.proto.config.document.redacted import redacted
from shardmerge.proto.rpc.coded_errors import error_from_proto

_MOST_TABLES = 100
KINDS = {
    "task": pb.GetConfigRequest.KIND_TASK,
    "source": pb.GetConfigRequest.KIND_SOURCE,
    "master": pb.GetConfigRequest.KIND_MASTER,
    "worker": pb.GetConfigRequest.KIND_WORKER,
}


def of_members(answer: pb.ListMemberResponse) -> BundleFile:
    return json_file("members.json", as_json.to_value(answer), "masters, workers, the leader (list-member)")


def of_config(kind: str, stored: pb.StoredConfig) -> BundleFile:
    """One configuration without its secrets and comments."""
    name = f"config/{kind}s/{safe_name(stored.name)}.yaml"
    return BundleFile(name, redacted(stored.cfg), f"the configuration of {kind} {stored.name} (config {kind})")


def of_summary(answer: pb.QueryStatusResponse) -> BundleFile:
    return json_file("status/tasks.json", as_json.query_status(answer, detail=False), "all tasks (query-status)")


def of_status(answer: pb.QueryStatusResponse) -> Iterator[Item]:
    """The answer about all sources, as one file for each task, and one for sources without a task."""
    tasks = sorted({one.name for part in answer.sources for one in part.sub_task_status})
    for task in tasks:
        own = pb.QueryStatusResponse(result=answer.result)
        for part in answer.sources:
            subtasks = [one for one in part.sub_task_status if one.name == task]
            if subtasks:
                own.sources.append(_with(part, subtasks))
        value = as_json.query_status(own, detail=True)
        yield json_file(f"status/task-{safe_name(task)}.json", value, f"task {task} (query-status {task})")
    for part in answer.sources:
        if not part.result:
            where = f"the status of the tasks on source {part.source_status.source}"
            yield NotCollected.of(where, error_from_proto(part.error))
    rest = [part for part in answer.sources if not part.sub_task_status]
    if rest:
        value = as_json.query_status(pb.QueryStatusResponse(result=answer.result, sources=rest), detail=True)
        yield json_file("status/sources-without-answer-or-task.json", value, "sources without a subtask that answers")


def cut_tables(answer: pb.QueryStatusResponse) -> Iterator[NotCollected]:
    """Leave out the progress of most tables of a subtask with very many: of 16 sources with 100 tasks and 1,024 tables
    each it would be 600 MB of text."""
    left_out = 0
    for part in answer.sources:
        for one in part.sub_task_status:
            loads = [one.load] if one.HasField("load") else []
            loads += [copy.load for copy in (one.join, *one.copies) if copy.HasField("load")]
            for load in loads:
                left_out += max(len(load.tables) - _MOST_TABLES, 0)
                del load.tables[_MOST_TABLES:]
    if left_out:
        what = f"the progress of the copy for {left_out} tables: a subtask has that of its first {_MOST_TABLES}"
        yield NotCollected(what, "too many tables for one file", "dmctl query-status TASK shows all of them")


def of_locks(answer: pb.ShowDDLLocksResponse) -> BundleFile:
    return json_file("ddl-locks.json", as_json.to_value(answer), "locks of sharding DDLs (shard-ddl-lock)")


def current_errors(answer: pb.QueryStatusResponse) -> Iterator[str]:
    """A line for each error that query-status shows."""
    for part in answer.sources:
        about = part.source_status
        if about.HasField("result"):
            yield f"source {about.source}: {error_from_proto(about.result)}"
        if about.relay_status.HasField("result"):
            yield f"relay log of source {about.source}: {error_from_proto(about.relay_status.result)}"
        for one in part.sub_task_status:
            for error in one.result.errors:
                yield f"task {one.name} on source {about.source}: {error_from_proto(error)}"
            for group in one.sync.unresolved_groups:
                if group.HasField("conflict"):
                    yield f"task {one.name} on source {about.source}: {error_from_proto(group.conflict)}"


def warnings(answer: pb.ListMemberResponse) -> Iterator[str]:
    """A line for each state of a member that an operator should know."""
    for kind, members in (("master", answer.masters), ("worker", answer.workers)):
        for member in members:
            if member.insecure:
                yield f"{kind} {member.name} is not protected: its file has insecure: true"
    for worker in answer.workers:
        if worker.stage == "offline":
            yield f"worker {worker.name} is offline, and holds source {worker.source}"
    if not answer.HasField("leader"):
        yield "no master leads"


def _with(part: pb.SourceSubTasks, subtasks: list[worker_pb2.SubTaskStatus]) -> pb.SourceSubTasks:
    made = pb.SourceSubTasks(result=part.result, msg=part.msg, source_status=part.source_status)
    made.sub_task_status.extend(subtasks)
    return made
