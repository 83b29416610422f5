"""Samples of the certificates that a daemon uses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardmerge.proto.metrics import own_both
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.warnings.certificates import CertificateEnd, first_ends


def certificate_samples(found: Iterable[CertificateEnd]) -> Iterator[Sample]:
    for use, ends in first_ends(found).items():
        yield own_both.CERTIFICATE_END.sample(ends, use=use.value)
