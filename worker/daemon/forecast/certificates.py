"""The certificates that a source's configuration and those of its tasks name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardmerge.proto import config_pb2
from shardmerge.proto.config.secrets.endpoint_secrets import CA, CERT, opened
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.warnings.certificates import CertificateFile, Use


def files_of_source(
    source: config_pb2.SourceConfig, tasks: Mapping[str, config_pb2.SubTaskConfig]
) -> tuple[CertificateFile, ...]:
    """A text that cannot be decrypted is left out: the connection reports it. No key is decrypted."""
    found = list(_of(getattr(source, "from"), Use.SOURCE, f"source {source.source_id}"))
    for task, config in sorted(tasks.items()):
        found += _of(config.target, Use.TARGET, f"the target of task {task}")
    return tuple(found)


def _of(endpoint: config_pb2.Endpoint, use: Use, whose: str) -> Iterator[CertificateFile]:
    authority = Use(f"{use.value}-ca")
    for kind, path, what in ((authority, endpoint.tls.ca, CA), (use, endpoint.tls.cert, CERT)):
        text = _plain(endpoint, what)
        if text:  # it is used in place of the file
            yield CertificateFile(kind, whose, content=text)
        elif path:
            yield CertificateFile(kind, whose, path)


def _plain(endpoint: config_pb2.Endpoint, what: str) -> str:
    try:
        return opened(endpoint, what)
    except ShardmergeError:
        return ""
