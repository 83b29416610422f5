"""The first tasks on a cluster: each executor has the worker's versions and a compiled decoder, and reaches the worker.

It runs before the worker registers: what it finds would stop every task of the worker later, one by one.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.tls.process import of_process
from shardmerge.worker.core.spark.build import Survey, own_versions
from shardmerge.worker.core.spark.failures import NOT_INSTALLED, difference, difference_in, first_line_of
from shardmerge.worker.core.spark.runner import SlotsFailed, SparkRunner


@dataclass(frozen=True, slots=True)
class ExecutorReport:
    """What one process of an executor has reported. ``unreachable``: why it cannot call the worker, "": it can."""

    host: str
    versions: Mapping[str, str]
    is_compiled: bool
    unreachable: str


def survey(spark: SparkRunner, address: str) -> ShardmergeError | None:
    """Check every executor; ``address``: of the worker, which serves calls already. Returns the warning that a decoder
    is not compiled; None: there is nothing to report.

    Raises SPARK_VERSIONS_DIFFER, SPARK_CANNOT_REACH_WORKER, SPARK_START_FAILED.
    """
    own = own_versions()
    try:
        texts = spark.in_every_slot("survey", Survey(address, pickle.dumps(of_process())))
    except SlotsFailed as error:
        raise explained(error, own) from error
    return verdict([_read(text) for text in texts], own, address)


def explained(failed: SlotsFailed, own: Mapping[str, str]) -> ShardmergeError:
    """The error of tasks that have ended without a report."""
    for task in failed.tasks:
        differs = difference_in(task.text)
        if differs is not None:
            there, here = differs.there or NOT_INSTALLED, own.get(differs.what, "installed")
            return errors.worker.SPARK_VERSIONS_DIFFER(host=task.host, what=differs.what, there=there, here=here)
    reasons = [f"{task.host}: {first_line_of(task.text)}" for task in failed.tasks[:1]] or [str(failed)]
    return errors.worker.SPARK_START_FAILED(reason=f"the first tasks on its executors have failed: {reasons[0]}")


def verdict(reports: Iterable[ExecutorReport], own: Mapping[str, str], address: str) -> ShardmergeError | None:
    """The warning of :func:`survey`, or its error. Versions come first: another version may have any other problem."""
    reports = sorted(reports, key=lambda report: report.host)
    for report in reports:
        differs = difference(report.host, report.versions, own)
        if differs is not None:
            raise differs
    for report in reports:
        if report.unreachable:
            raise errors.worker.SPARK_CANNOT_REACH_WORKER(host=report.host, address=address, reason=report.unreachable)
    slow = _uncompiled(reports)
    return errors.worker.DECODER_NOT_COMPILED(where=", ".join(slow)) if slow else None


def _uncompiled(reports: Sequence[ExecutorReport]) -> list[str]:
    return sorted({report.host for report in reports if not report.is_compiled})


def _read(text: str) -> ExecutorReport:
    found = json.loads(text)
    return ExecutorReport(found["host"], found["versions"], bool(found["compiled"]), str(found["unreachable"]))
