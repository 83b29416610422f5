"""Coded errors on the wire: every known code, and codes and wordings of a newer peer."""

from __future__ import annotations

from shardmerge.proto import errors
from shardmerge.proto.common_pb2 import ErrorDetail
from shardmerge.proto.errors import CATALOGUE
from shardmerge.proto.rpc.coded_errors import error_from_proto, error_to_proto


def test_every_error_of_the_catalogue_survives_the_round_trip() -> None:
    for spec in CATALOGUE.values():
        error = spec(**dict.fromkeys(spec.placeholders(), "{braces}"))
        back = error_from_proto(error_to_proto(error))
        assert (back.spec, back.message, back.workaround) == (spec, error.message, error.workaround)


def test_error_of_a_newer_peer_is_readable() -> None:
    detail = ErrorDetail(code=99_999, name="new", error_class="x", message="{a} 1", workaround="{b}", retryable=True)
    error = error_from_proto(detail)
    assert (error.code, error.message, error.workaround, error.spec.retryable) == (99_999, "{a} 1", "{b}", True)
    reworded = error_to_proto(errors.master.SOURCE_UNKNOWN(source="s"))
    reworded.message = "another wording"
    assert error_from_proto(reworded).message == "another wording"
