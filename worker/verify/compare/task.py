"""The body of one comparing Spark task: takes pieces of work from its worker until none is left.

A piece is first compared by checksums that both servers compute, each at its own time. A difference may only mean that
the row changed in between: such keys are read again between watermarks and compared (judge.py), again and again while
events touch them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import grpc

from shardmerge.proto import compare_pb2 as pb
from shardmerge.proto import compare_pb2_grpc, failpoints, relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.rpc import client
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.spark.task_credentials import fetch_credentials
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.task_runner import TaskBody, TaskDone, TaskOutcome, TaskStopped
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.reader.worker_link import GrpcWorkerClient, Located
from shardmerge.worker.verify.compare.compared_relations import ComparedRelation
from shardmerge.worker.verify.compare.compared_tables import ComparedTable, TableQueries, UnkeyedTables
from shardmerge.worker.verify.compare.judge import Finding, candidates, diff_rows
from shardmerge.worker.verify.compare.keys import RowKey
from shardmerge.worker.verify.compare.messages import fill_report, still_different
from shardmerge.worker.verify.compare.orphans import OrphanSearch
from shardmerge.worker.verify.compare.patience import Patience
from shardmerge.worker.verify.compare.repair import KEYS_PER_TRANSACTION, RepairResult, repair
from shardmerge.worker.verify.compare.sides import RelayPlaces, SourceSide, TargetSide, read_rows
from shardmerge.worker.verify.compare.unkeyed import unkeyed_report

log = get_logger()

_ATTEMPTS = 12
"""How often a key that changes meanwhile is read."""
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CompareSpec:
    """The settings of all tasks of one comparison; pickled into the Spark tasks.

    ``secret``: the secret of the comparison's run. The endpoints carry no passwords; each task fetches them.
    ``identity``: the name by which the worker knows the comparison; ``run``: its number. ``most_rows``: how many rows
    one piece of work names at most.
    """

    address: str
    secret: str = field(repr=False)
    identity: str
    run: int
    subtask: SubtaskKey
    source: Endpoint
    target: Endpoint
    tables: tuple[ComparedTable | UnkeyedTables, ...]
    relations: tuple[ComparedRelation, ...]
    repair: bool
    most_rows: int


class CompareTask(TaskBody):
    """The Spark task's body; called once per task with the task's number."""

    def __init__(self, spec: CompareSpec) -> None:
        self._spec = spec

    def __call__(self, index: int) -> TaskOutcome:
        spec = self._spec
        found = fetch_credentials(spec.address, _identity(spec, index))
        if found is None:
            return TaskStopped()
        source, target = spec.source.with_secrets(found.source), spec.target.with_secrets(found.target)
        comparer = _Comparer(replace(spec, source=source, target=target), index)
        try:
            return comparer.run()
        except _Stopped:
            return TaskStopped()
        finally:
            comparer.close()

    def failed(self, index: int, error: ShardmergeError) -> None:
        queue = _QueueClient(self._spec, index)
        try:
            queue.report(pb.WorkReport(failed=error_to_proto(error)))
        except ShardmergeError as unsent:
            log.debug("report not delivered", reason=str(unsent))
        except _Stopped:
            pass
        finally:
            queue.close()


def _identity(spec: CompareSpec, index: int) -> relay_pb2.TaskIdentity:
    return relay_pb2.TaskIdentity(
        task=spec.identity, source=spec.subtask.source, epoch=spec.run, index=index, run_secret=spec.secret
    )


class _Stopped(Exception):
    """The worker asks the task to end."""


class _QueueClient:
    """The task's calls to its worker. Methods raise catalogue errors, and _Stopped."""

    def __init__(self, spec: CompareSpec, index: int) -> None:
        self.who = _identity(spec, index)
        self._peer, self._address = f"worker at {spec.address}", spec.address
        self._channel = client.channel(spec.address)
        self._stub = compare_pb2_grpc.CompareDeskStub(self._channel)

    def take(self) -> pb.CompareWork:
        try:
            work = self._stub.TakeWork(pb.TakeWorkRequest(who=self.who), timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, self._peer, self._address) from error
        if work.kind == pb.CompareWork.KIND_STOP:
            raise _Stopped
        return work

    def report(self, report: pb.WorkReport) -> None:
        report.who.CopyFrom(self.who)
        try:
            stop = self._stub.ReportWork(report, timeout=_ANSWER_SECONDS).stop
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, self._peer, self._address) from error
        if stop:
            raise _Stopped

    def lanes(self) -> Located | None:
        self.report(pb.WorkReport(alive=True))
        try:
            place = self._stub.AskLanes(pb.TakeWorkRequest(who=self.who), timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, self._peer, self._address) from error
        if not place.HasField("committed"):
            return None
        return Located(place.relay_id, RelayOffset.from_proto(place.committed))

    def close(self) -> None:
        self._channel.close()


class _Comparer:
    def __init__(self, spec: CompareSpec, index: int) -> None:
        self._spec = spec
        self._queue = _QueueClient(spec, index)
        self._link = GrpcWorkerClient(spec.address, self._queue.who, 0)
        self._source = SourceSide(spec.source, spec.subtask.source)
        self._target = TargetSide(spec.target, spec.subtask)
        self._places = RelayPlaces(self._link, spec.subtask, self._queue.lanes)
        self._reads: dict[int, TableQueries] = {}
        self._searches: dict[int, OrphanSearch] = {}

    def close(self) -> None:
        self._source.close()
        self._target.close()
        self._link.close()
        self._queue.close()

    def run(self) -> TaskOutcome:
        while True:
            work = self._queue.take()
            match work.kind:
                case pb.CompareWork.KIND_FINISHED:
                    return TaskDone()
                case pb.CompareWork.KIND_WAIT:
                    continue
                case _:
                    self._queue.report(self._compare_with_retries(work))

    def _compare_with_retries(self, work: pb.CompareWork) -> pb.WorkReport:
        """Compare one piece; retryable errors are retried. Raises the last one."""
        patience = Patience()
        failpoints.hit("compare.piece")
        while True:
            try:
                return self._compare(work)
            except ShardmergeError as error:
                self._source.close()
                self._target.close()
                pause = patience.pause(error)
                if pause is None:
                    raise
                log.warning("a piece of a comparison is retried", error=str(error), again_in=pause)
                self._queue.report(pb.WorkReport(alive=True))
                time.sleep(pause)
            except BaseException:
                self._source.close()  # rows may still arrive
                self._target.close()
                raise

    def _compare(self, work: pb.CompareWork) -> pb.WorkReport:
        if work.kind == pb.CompareWork.KIND_REFERENCE:
            return self._search(work.table).report(work)
        table = self._spec.tables[work.table]
        if isinstance(table, UnkeyedTables):
            return unkeyed_report(work, table, self._source, self._target, self._places)
        reads = self._reads.get(work.table)
        if reads is None:
            reads = self._reads[work.table] = TableQueries(table, table.keys())
        chunk = Chunk(work.number, tuple(work.lower), tuple(work.upper))
        rows, doubtful = self._suspects(work.kind, reads, chunk)
        report = pb.WorkReport(work=work, rows=rows)
        findings, left = self._diff_between_watermarks(doubtful, table, reads)
        fixed = self._repaired(findings, table, reads) if self._spec.repair and findings else None
        fill_report(report, findings, left, table, fixed, self._spec.most_rows)
        if work.kind == pb.CompareWork.KIND_STRAY:
            for difference in report.differences:
                difference.source_table = ""
        return report

    def _search(self, number: int) -> OrphanSearch:
        found = self._searches.get(number)
        if found is None:
            spec = self._spec
            found = OrphanSearch(spec.relations[number], self._source, self._target, self._places, spec.most_rows)
            self._searches[number] = found
        return found

    # --- by checksums

    def _suspects(self, kind: pb.CompareWork.Kind, reads: TableQueries, chunk: Chunk) -> tuple[int, list[RowKey]]:
        """Compare by checksums: (rows of the shard table, keys that may differ)."""
        match kind:
            case pb.CompareWork.KIND_RANGE:
                return self._by_range(reads, chunk)
            case pb.CompareWork.KIND_KEYS:
                ours = self._hashes(self._source.rows(reads.source_hashes(chunk)), reads, at_source=True)
                theirs = self._hashes(self._target.rows(*reads.target_hashes_of(list(ours))), reads, at_source=False)
                return len(ours), candidates(_single(ours), theirs)
            case pb.CompareWork.KIND_BACK:
                keys = [reads.keys.at_target(raw) for raw in self._target.rows(reads.target_keys(chunk))]
                found = self._source.rows(*reads.source_keys_of(keys))
                known = {reads.keys.at_source(raw).target for raw in found}
                return 0, [key for key in keys if key.target not in known]
            case _:
                strays = [reads.keys.at_target(raw) for raw in self._target.rows(reads.stray_keys())]
                return 0, [RowKey(key.target, ()) for key in strays]

    def _by_range(self, reads: TableQueries, chunk: Chunk) -> tuple[int, list[RowKey]]:
        [ours] = self._source.rows(reads.source_sum(chunk))
        [theirs] = self._target.rows(reads.target_sum(chunk))
        rows = int(ours[0] or 0)
        if ours == theirs:
            return rows, []
        there = self._hashes(self._target.rows(reads.target_hashes(chunk)), reads, at_source=False)
        here = self._hashes(self._source.rows(reads.source_hashes(chunk)), reads, at_source=True)
        return rows, candidates(_single(here), there)

    def _hashes(
        self, rows: Iterator[list[bytes | None]], reads: TableQueries, *, at_source: bool
    ) -> dict[RowKey, list[bytes | None]]:
        make = reads.keys.at_source if at_source else reads.keys.at_target
        found: dict[RowKey, list[bytes | None]] = {}
        for raw in rows:
            found.setdefault(make(raw[:-1]), []).append(raw[-1])
        return found

    # --- between watermarks

    def _diff_between_watermarks(
        self, doubtful: Sequence[RowKey], table: ComparedTable, reads: TableQueries
    ) -> tuple[list[Finding], tuple[RowKey, ...]]:
        """The certain differences, and the keys that changed in every attempt."""
        findings: list[Finding] = []
        left = tuple(doubtful)
        for _ in range(_ATTEMPTS):
            if not left:
                break
            low = self._source.low()
            ours = read_rows(self._source.rows(*reads.source_rows(left)), table, reads, at_source=True)
            high = self._source.high()
            start, end = self._places.locate(low), self._places.locate(high)
            if start.relay_id != end.relay_id:
                raise self._places.changed()
            self._places.await_lanes(end, high)
            theirs = read_rows(self._target.rows(*reads.target_rows(left)), table, reads, at_source=False)
            # By now the source has written everything that a lane has committed.
            after = self._places.locate(self._source.high())
            touched = self._places.touched(table.plan, start.offset, after)
            verdict = diff_rows(left, {key: rows[0] for key, rows in ours.items()}, theirs, touched, table.columns)
            findings += verdict.findings
            left = verdict.still_changing
        return findings, left

    def _repaired(self, findings: Sequence[Finding], table: ComparedTable, reads: TableQueries) -> RepairResult:
        done: set[Literals] = set()
        refused: dict[Literals, str] = {}
        # One key may be found twice, in different spellings of the target.
        left = list(dict.fromkeys(finding.key for finding in findings))
        for _ in range(_ATTEMPTS):
            now, later = left[:KEYS_PER_TRANSACTION], left[KEYS_PER_TRANSACTION:]
            while now:
                self._await_lanes_now()
                found = repair(now, table, reads, self._source, self._target, self._places, self._spec.subtask)
                done |= found.done
                refused |= found.refused
                now, later = later[:KEYS_PER_TRANSACTION], later[KEYS_PER_TRANSACTION:]
            left = [key for key in left if key.target not in done and key.target not in refused]
            if not left:
                break
        written = [finding.key for finding in findings if finding.key.target in done]
        refused |= self._still_different(tuple(dict.fromkeys(written)), table, reads)
        return RepairResult(frozenset(done - refused.keys()), refused)

    def _still_different(
        self, written: Sequence[RowKey], table: ComparedTable, reads: TableQueries
    ) -> dict[Literals, str]:
        """Why repaired rows do not count as repaired, by key. The target may have changed a value that it accepted: a
        trigger does so."""
        findings, changing = self._diff_between_watermarks(written, table, reads)
        reasons = dict.fromkeys((key.target for key in changing), "it changed each time that it was read again")
        return reasons | {finding.key.target: still_different(finding, table) for finding in findings}

    def _await_lanes_now(self) -> None:
        """Wait until the lanes are near the source's end, so that the repair blocks them only for few events."""
        high = self._source.high()
        self._places.await_lanes(self._places.locate(high), high)


def _single(hashes: dict[RowKey, list[bytes | None]]) -> dict[RowKey, bytes | None]:
    return {key: found[0] for key, found in hashes.items()}
