"""The answer of `dmctl history`: a row per entry, the newest last, then lag and rate. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl import as_json
from shardmerge.ctl.as_json import Json
from shardmerge.ctl.render import format, style
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2

_STYLES = {"stage": "cyan", "error": "bold red", "ddl": "magenta", "command": "bold", "binding": "yellow"}

WIDTH = 60
_BLANK = " "


def timeline(answer: pb.HistoryResponse) -> RenderableType:
    """The whole answer."""
    parts: list[RenderableType] = []
    if answer.older:
        parts.append(style.cell(f"{answer.older} older entries are not shown: see --limit", "dim"))
    if answer.entries:
        parts.append(_entries(answer))
    elif not answer.samples:
        parts.append(Text("Nothing is recorded in this time.", style="dim"))
    drawn = lag_and_rate(answer.samples)
    if drawn:
        first, last = format.moment(answer.samples[0].at), format.moment(answer.samples[-1].at)
        parts.append(style.heading(f"lag and rate from {first} to {last} UTC"))
        made = style.table("", "", "")
        made.show_header = False
        for name, line, figures in drawn:
            made.add(name, Text(line, style="green"), figures)
        parts.append(made)
    if answer.unreadable:
        parts.append(style.cell(f"{answer.unreadable} records are of a newer version and are not shown", "yellow"))
    if not answer.exists:
        parts.append(Text("The task does not exist now.", style="dim"))
    return Group(*parts)


def value(answer: pb.HistoryResponse) -> dict[str, Json]:
    """The answer as JSON: the lag of a sample is null where it is not known."""
    made = as_json.to_value(answer)
    samples = made["samples"]
    assert isinstance(samples, list)  # noqa: S101 - for the type checker
    for sample, drawn in zip(answer.samples, samples, strict=True):
        if isinstance(drawn, dict) and not _has_lag(sample):
            drawn.update(lag=None, highestLag=None)
    return made


def _entries(answer: pb.HistoryResponse) -> RenderableType:
    made = style.table("time (UTC)", "kind", "source", "what", "by")
    for entry in answer.entries:
        made.add(
            style.cell(format.moment(entry.last)),
            Text(style.flat(entry.kind), style="bold red" if entry.failed else _STYLES.get(entry.kind, "")),
            style.cell(", ".join(entry.sources) or "–", "bold"),
            Text("\n").join(_lines(entry)),
            entry.actor or entry.writer.partition(" ")[2] or entry.writer,
        )
    return made


def _lines(entry: state_pb2.HistoryRecord) -> Iterator[Text]:
    head = style.cell(entry.text)
    if entry.failed:
        head.append(", failed", style="bold red")
    if entry.count > 1:
        head.append(f"  ({entry.count} times since {format.moment(entry.first)})", style="bold yellow")
    yield head
    if entry.code or entry.message:
        code = f"[{entry.code} {style.flat(entry.name)}] " if entry.code else ""
        yield Text.assemble((code, "red"), style.flat(entry.message))
    if entry.statement:
        target = f"  → {style.flat(entry.target)}" if entry.target else ""
        yield Text.assemble((style.flat(entry.statement), "dim"), target)
    if entry.position and entry.position not in entry.message:
        yield style.cell(f"at {entry.position}", "dim")
    if entry.left_out:
        yield style.cell(f"{entry.left_out} events of this kind before it were too many to be recorded", "yellow")


def lag_and_rate(samples: Sequence[state_pb2.HistorySample]) -> list[tuple[str, str, str]]:
    """(name, bars, figures) for the lag and the rate; none without samples."""
    if not samples:
        return []
    begin, end = samples[0].at, samples[-1].at
    lags = [one for one in samples if _has_lag(one)]
    highest = max(lags, key=lambda one: one.highest_lag, default=None)
    lag_figures = (
        "not known"
        if highest is None
        else f"highest {format.duration(highest.highest_lag)} at {format.moment(highest.at)}, "
        f"last {format.duration(lags[-1].lag)}"
    )
    rate = max(samples, key=lambda one: one.rate)
    mean = sum(one.rate for one in samples) / len(samples)
    return [
        ("lag", bars(samples, begin, end, lambda one: one.highest_lag if _has_lag(one) else None), lag_figures),
        (
            "rows/s",
            bars(samples, begin, end, lambda one: one.rate),
            f"highest {format.rate(rate.rate)} at {format.moment(rate.at)}, mean {format.rate(mean)}",
        ),
    ]


def _has_lag(sample: state_pb2.HistorySample) -> bool:
    """Whether the lag of any source is known."""
    return sample.unknown < sample.sources


def bars(
    samples: Iterable[state_pb2.HistorySample],
    begin: float,
    end: float,
    value: Callable[[state_pb2.HistorySample], float | None],
) -> str:
    """The highest value in each part of the time; a blank where none is known. At most :data:`WIDTH` parts."""
    taken = list(samples)
    width = min(WIDTH, len(taken))
    parts: list[float | None] = [None] * width
    for sample in taken:
        known = value(sample)
        at = 0 if end <= begin else min(width - 1, int((sample.at - begin) / (end - begin) * width))
        if known is not None:
            parts[at] = max(known, parts[at] or 0.0)
    drawn = iter(format.sparkline(tuple(part for part in parts if part is not None)))
    return "".join(_BLANK if part is None else next(drawn) for part in parts)
