"""A command that answers for each source is one that the leader carries out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardmerge.master.store import Store
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.rpc.coded_errors import error_from_proto

_NOT_LEADING = frozenset({errors.master.NOT_LEADER.code, errors.master.NO_LEADER.code})


def decided_for_each(store: Store, decide: Callable[[], list[pb.SourceResult]]) -> list[pb.SourceResult]:
    """The results of ``decide``, one for each source. Raises NOT_LEADER or NO_LEADER if this master does not lead, or
    stops leading before it has decided anything. dmctl then asks the leader; it does not if this is the error of each
    source in an answer."""
    store.check_leads()
    results = decide()
    check_decided(results)
    return results


def check_decided(results: Sequence[pb.SourceResult]) -> None:
    """Raises NOT_LEADER or NO_LEADER if it is the result of each source: nothing was decided."""
    if results and all(one.error.code in _NOT_LEADING for one in results):
        raise error_from_proto(results[0].error)
