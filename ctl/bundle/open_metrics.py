"""Samples of one daemon's metrics as one text of the OpenMetrics format, which promtool can load into Prometheus.

A text of Prometheus' format has one value for each series. Here each series has all of its values, with times. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_MOST_BYTES = 64 << 20
"""Of one sample, unpacked."""
_MOST_TOGETHER_BYTES = 128 << 20


@dataclass(slots=True)
class _Family:
    name: str
    kind: str = "unknown"
    help: str = ""
    series: dict[str, list[tuple[float, str]]] = field(default_factory=dict[str, list[tuple[float, str]]])


def unpacked(packed: bytes) -> str:
    """The text of a sample; "" for what is none, or too large."""
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(packed, _MOST_BYTES)
    except zlib.error:
        return ""
    return text.decode(errors="replace") if reader.eof else ""


def newest(samples: Iterable[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """The unpacked samples, the oldest first. The oldest ones are left out if all together are too large."""
    kept: list[tuple[float, str]] = []
    size = 0
    for at, packed in reversed(list(samples)):
        text = unpacked(packed)
        size += len(text)
        if size > _MOST_TOGETHER_BYTES:
            break
        kept.append((at, text))
    return kept[::-1]


def open_metrics(samples: Iterable[tuple[float, str]]) -> str:
    """``samples``: (Unix seconds, text in Prometheus' format), the oldest first."""
    families: dict[str, _Family] = {}
    for at, text in samples:
        _add(families, at, text)
    return "".join(f"{line}\n" for line in (*_lines(families.values()), "# EOF"))


def _add(families: dict[str, _Family], at: float, text: str) -> None:
    family = _Family("")
    for line in text.split("\n"):
        if line.startswith("# "):
            _, word, name, *rest = (*line.split(" ", 3), "", "")
            if word in ("HELP", "TYPE"):
                family = families.setdefault(name, _Family(name))
                if word == "TYPE":
                    family.kind = rest[0]
                else:
                    family.help = rest[0]
        elif line:
            series, _, value = line.rpartition(" ")
            family.series.setdefault(series, []).append((at, value))


def _lines(families: Iterable[_Family]) -> Iterator[str]:
    described: set[str] = set()
    for family in families:
        # A counter's family has the name without _total. DM's counters exist under both names.
        name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
        if name not in described:
            described.add(name)
            yield f"# TYPE {name} {'unknown' if family.kind == 'untyped' else family.kind}"
            yield f"# HELP {name} {family.help}"
        for series, values in family.series.items():
            yield from (f"{series} {value} {at:.3f}" for at, value in values)
