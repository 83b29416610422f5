"""The answer of `why` as one screen; pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from shardmerge.ctl.dm_words import stage_word, unit_word
from shardmerge.ctl.render import format, style
from shardmerge.ctl.render.tables import problems
from shardmerge.proto import diagnose_pb2 as diagnosis
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.listed_names import listed

_MOST_FINDINGS = 6
_MOST_OF_A_KIND = 3
_MOST_SOURCES = 8
_NAMED = 4
_LEAST_SHARE = 0.005
_HEAVY = 50.0
"""From this weight on a finding is a cause that delays the task; below it is a note."""

_CAUSE_STYLES = {"target": "bold yellow", "gather": "yellow", "retry": "bold red", "throttle": "bold yellow"}
_TERMS = (
    (
        "lane",
        r"\b[Ll]anes?\b",
        "one of the parallel writers of a task at one source; a row is always written by the same",
    ),
    ("relay log", r"\brelay log\b", "the copy of the source's binlog on the worker's disk, from which lanes read"),
    ("relay", r"\brelay\b(?! log)", "what fetches the source's binlog to the worker"),
    ("shard table", r"\bshard tables?\b|shard table\(s\)", "a table of a source whose rows go to a merged table"),
    ("DDL lock", r"\bDDL locks?\b", "the wait of shard tables for each other before a statement runs at the target"),
    ("unlock", r"\bunlock\b", "decides that a statement runs, or is left out, without waiting any longer"),
    ("chunk", r"\bchunks?\b", "the part of a table that is copied by one SELECT"),
    ("reader", r"\breaders?\b", "one of the parallel connections that copy the history"),
    ("history", r"\bhistory\b", "the rows that the tables had when the task began; changes are applied after them"),
    ("round trip", r"\bround trip\b", "the time from a short statement to its answer: the network"),
    ("commit", r"\bcommits?\b", "one transaction of a lane at the target, with up to some thousand rows"),
    ("lag", r"\blags?\b", "how old the newest change is that the target has, compared with the source"),
    ("checkpoint", r"\bcheckpoints?\b", "the place in the source's binlog up to which a lane has written everything"),
    ("quarantine", r"\bquarantine\b", "a table at the target that keeps changes which the target refused"),
    ("Spark slot", r"\bSpark slots?\b", "room for one lane or reader; the worker's configuration limits them"),
    ("executor", r"\bexecutors?\b", "a process in which lanes run, on the worker or on other machines"),
)
"""The word, where it is used, and its meaning."""

_CAUSES = {
    "idle": "everything is applied",
    "read": "waits for the relay log; while the history is copied: reads the source",
    "decode": "decodes rows and applies the rules: processors of the worker",
    "target": "transactions at the target",
    "gather": "collects rows for as long as the last commit took",
    "retry": "repeats what the target refused for a temporary reason",
    "barrier": "waits for a statement that all lanes must reach",
    "start": "connects, and reads its checkpoint",
    "write": "writes the target",
    "throttle": "waits because of a limit in the task file",
    "wait": "waits until chunks are planned",
}
"""What time is spent on."""


def screen(answer: pb.DiagnoseResponse, *, all_findings: bool = False) -> RenderableType:
    """Where the time goes by source, then the findings with what to do. Findings of several sources about the same are
    one, that of the first of them; with ``all_findings`` each is shown."""
    parts: list[RenderableType] = []
    if answer.uses:
        parts += [_uses(answer, most=len(answer.uses) if all_findings else _MOST_SOURCES)]
    groups = [[each] for each in answer.findings] if all_findings else _grouped(answer.findings)
    shown_groups = groups if all_findings else _shown(groups)
    for number, (finding, *others) in enumerate(shown_groups, 1):
        parts.append(_finding(number, finding, [source for each in others for source in each.sources]))
    if not answer.findings:
        parts.append(Padding(Text("Nothing delays it, as far as is known.", style="green"), (1, 0, 0, 0)))
    left = len(groups) - len(shown_groups)
    if left:
        parts.append(Padding(Text(f"and {left} more: --all", style="dim"), (1, 0, 0, 0)))
    if answer.unknown:
        parts.append(style.heading("Not known"))
        most = len(answer.unknown) if all_findings else _MOST_FINDINGS
        parts += [Padding(style.cell(sentence, "yellow"), (0, 0, 0, 2)) for sentence in answer.unknown[:most]]
        if len(answer.unknown) > most:
            parts.append(Padding(Text(f"and {len(answer.unknown) - most} more: --all", style="dim"), (0, 0, 0, 2)))
    parts += _legend(answer, shown_groups)
    shown = {source for finding in answer.findings for source in finding.sources}
    return Group(*parts, *([] if shown else problems(answer)))


def _legend(answer: pb.DiagnoseResponse, groups: Sequence[list[diagnosis.Finding]]) -> list[RenderableType]:
    """The meaning of the words that the screen uses."""
    texts = [part for group in groups for part in (group[0].text, *group[0].actions)]
    causes = {cause for use in answer.uses for cause, share in use.shares.items() if share >= _LEAST_SHARE}
    lines = list(_explained([*texts, *answer.unknown], causes))
    return (
        [style.heading("Words"), *(Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in lines)] if lines else []
    )


def _explained(texts: list[str], causes: set[str]) -> Iterator[str]:
    """A line for each term that ``texts`` use, and one for the ``causes`` of the table of times."""
    whole = "\n".join(texts)
    for term, pattern, meaning in _TERMS:
        if re.search(pattern, whole):
            yield f"{term}: {meaning}"
    known = [f"{cause}: {_CAUSES[cause]}" for cause in _CAUSES if cause in causes]
    if known:
        yield "time of lanes and readers: " + "; ".join(known)


def _grouped(findings: Iterable[diagnosis.Finding]) -> list[list[diagnosis.Finding]]:
    """Findings with one id about the same objects together, in the order of the first of each."""
    groups: dict[tuple[object, ...], list[diagnosis.Finding]] = {}
    for each in findings:
        groups.setdefault((each.id, *sorted(each.names.items())), []).append(each)
    return list(groups.values())


def _shown(groups: Sequence[list[diagnosis.Finding]]) -> list[list[diagnosis.Finding]]:
    """The first groups that have room, and of each kind only some: many of one kind must not hide the others."""
    counts: Counter[str] = Counter()
    found: list[list[diagnosis.Finding]] = []
    for group in groups:
        kind = group[0].id
        counts[kind] += 1
        if counts[kind] <= _MOST_OF_A_KIND and len(found) < _MOST_FINDINGS:
            found.append(group)
    return found


def _finding(number: int, finding: diagnosis.Finding, also: Sequence[str]) -> RenderableType:
    """``also``: other sources with the same finding."""
    where = listed(finding.sources, _NAMED)
    look = "bold red" if finding.weight >= _HEAVY else "bold cyan"
    head = Text.assemble(
        (f"{number}. ", "bold"),
        (style.flat(finding.id), look),
        (f"  {style.flat(where)}" if where else "", "bold"),
        f"  {style.flat(finding.text)}",
    )
    todo = [
        Padding(Text.assemble(("→ ", "bold"), style.flat(action)), (0, 0, 0, 3)) for action in finding.actions if action
    ]
    if also:
        line = Text(f"the same at {style.flat(listed(also, _NAMED))}: --all has the figures", style="dim")
        todo.append(Padding(line, (0, 0, 0, 3)))
    return Padding(Group(head, *todo), (1, 0, 0, 0))


def _uses(answer: pb.DiagnoseResponse, *, most: int) -> RenderableType:
    right = ("lag", "changes/s", "commit", "round trip")
    made = style.table("source", "worker", "stage", "unit", *right, f"time of {answer.seconds:.1f} s", right=right)
    uses = list(answer.uses)
    if len(uses) > most:
        uses.sort(key=lambda use: -use.lag_seconds if use.HasField("lag_seconds") else -math.inf)
    for use in uses[:most]:
        made.add(
            use.source,
            use.worker or "–",
            style.stage(stage_word(use.stage)),
            unit_word(use.unit) if use.unit else "–",
            format.duration(use.lag_seconds) if use.HasField("lag_seconds") else "–",
            format.rate(use.changes_per_second),
            _milliseconds(use.commit_ms) if use.HasField("commit_ms") else "–",
            _milliseconds(use.round_trip_ms) if use.HasField("round_trip_ms") else "–",
            _shares(use),
        )
    if len(answer.uses) > most:
        made.add(style.cell(f"and {len(answer.uses) - most} more: --all", "dim"))
    return made


def _milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 10 else format.duration(value / 1000)


def _shares(use: diagnosis.SourceUse) -> Text:
    """``target 62 %, read 31 %``: the largest first."""
    shares = sorted(use.shares.items(), key=lambda each: (-each[1], each[0]))
    line = Text()
    for cause, share in shares:
        if share < _LEAST_SHARE:
            continue
        line.append(", " if line else "")
        line.append(f"{style.flat(cause)} {share * 100:.0f} %", style=_CAUSE_STYLES.get(cause, ""))
    return line if line else Text("not known", style="dim")
