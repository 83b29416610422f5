"""Where the rows of source tables go, for a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from ctl import look
from ctl.report import Report
from proto import master_pb2 as pb
from proto import worker_pb2

_DECIDES = "block-allow-list"
_EXISTENCE = {"missing": "not there yet", "unseen": "the source was not asked"}


def explained(answer: pb.ExplainRulesResponse, *, in_full: bool) -> RenderableType:
    """A row per table; ``in_full``: below it every rule that has a say, one a line."""
    made = look.table("source", "table", "goes to", "why")
    tables = [table for part in answer.sources for table in part.tables]
    for table in tables:
        made.add_row(
            look.cell(table.source, "bold"),
            look.cell(f"{table.schema}.{table.table}", "" if table.takes_part else "dim"),
            _target(table),
            look.cell(_why(table), "" if table.takes_part else "dim"),
        )
    parts: list[RenderableType] = [made] if tables else []
    if in_full:
        for table in tables:
            parts.extend(_rules(table))
    for part in answer.sources:
        if part.msg and part.result:
            parts.append(look.cell(f"{part.source}: {part.msg}", "yellow"))
        parts.extend(_problems(part))
    taking = sum(table.takes_part for table in tables)
    parts.append(Text(f"{taking} of {len(tables)} tables take part; nothing has run.", style="dim"))
    return Group(*parts)


def _target(table: worker_pb2.TableRules) -> Text:
    if table.HasField("error"):
        return Text("✗ the task would refuse it", style="bold red")
    return look.cell(table.target, "green") if table.takes_part else Text("–", style="dim")


def _why(table: worker_pb2.TableRules) -> str:
    """What decided for or against it, and, if it takes part, for its target and its values."""
    said = [rule for rule in table.rules if not table.takes_part or rule.kind != _DECIDES]
    words = [_rule(rule) for rule in said]
    if table.existence in _EXISTENCE:
        words.append(_EXISTENCE[table.existence])
    return "; ".join(words)


def _rule(rule: worker_pb2.AppliedRule) -> str:
    text = f"{rule.name}: {rule.text}" if rule.name else rule.text
    return f"{text} (over {', '.join(rule.beaten)})" if rule.beaten else text


def _rules(table: worker_pb2.TableRules) -> Iterator[RenderableType]:
    yield look.heading(f"{table.source} {look.flat(table.schema)}.{look.flat(table.table)}")
    made = look.table("rule", "name", "what it says", "it beats")
    for rule in table.rules:
        made.add_row(
            look.cell(rule.kind),
            look.cell(rule.name or "–", "bold"),
            look.cell(rule.text),
            look.cell(", ".join(rule.beaten) or "–"),
        )
    yield made


def _problems(part: pb.SourceRules) -> Iterator[RenderableType]:
    """Each table's own, and the source's unless it is one of these."""
    of_tables = [table.error for table in part.tables if table.HasField("error")]
    for error in of_tables:
        yield look.problem(Report.of_detail(error), part.source)
    if part.HasField("error") and part.error not in of_tables:
        yield look.problem(Report.of_detail(part.error), part.source)
