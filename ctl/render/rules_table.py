"""Where the rows of source tables go, as a table for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.error_report import ErrorReport
from shardmerge.ctl.render import style
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2

_DECIDES = "block-allow-list"
_EXISTENCE = {"missing": "does not exist yet", "unseen": "the source was not asked"}


def explained(answer: pb.ExplainRulesResponse, *, in_full: bool) -> RenderableType:
    """A row per table; ``in_full``: below it every rule that applies, one per line."""
    made = style.table("source", "table", "goes to", "why")
    tables = [table for part in answer.sources for table in part.tables]
    for table in tables:
        made.add(
            table.source,
            style.cell(f"{table.schema}.{table.table}", "" if table.takes_part else "dim"),
            _target(table),
            style.cell(_why(table), "" if table.takes_part else "dim"),
        )
    parts: list[RenderableType] = [made] if tables else []
    if in_full:
        for table in tables:
            parts.extend(_rules(table))
    for part in answer.sources:
        if part.msg and part.result:
            parts.append(style.cell(f"{part.source}: {part.msg}", "yellow"))
        parts.extend(_problems(part))
    taking = sum(table.takes_part for table in tables)
    parts.append(Text(f"{taking} of {len(tables)} tables take part; nothing has run.", style="dim"))
    return Group(*parts)


def _target(table: worker_pb2.TableRules) -> Text:
    if table.HasField("error"):
        return Text("✗ the task would refuse it", style="bold red")
    return style.cell(table.target, "green") if table.takes_part else Text("–", style="dim")


def _why(table: worker_pb2.TableRules) -> str:
    """The rules that include or exclude the table, and, if it takes part, those for its target and its values."""
    deciding = [rule for rule in table.rules if not table.takes_part or rule.kind != _DECIDES]
    texts = [_rule(rule) for rule in deciding]
    if table.existence in _EXISTENCE:
        texts.append(_EXISTENCE[table.existence])
    return "; ".join(texts)


def _rule(rule: worker_pb2.AppliedRule) -> str:
    text = f"{rule.name}: {rule.text}" if rule.name else rule.text
    return f"{text} (over {', '.join(rule.beaten)})" if rule.beaten else text


def _rules(table: worker_pb2.TableRules) -> Iterator[RenderableType]:
    yield style.heading(f"{table.source} {style.flat(table.schema)}.{style.flat(table.table)}")
    made = style.table("rule", "name", "decision", "overrides")
    for rule in table.rules:
        made.add(style.cell(rule.kind), style.cell(rule.name or "–", "bold"), rule.text, ", ".join(rule.beaten) or "–")
    yield made


def _problems(part: pb.SourceRules) -> Iterator[RenderableType]:
    """The error of each table, and that of the source unless it is one of these."""
    of_tables = [table.error for table in part.tables if table.HasField("error")]
    for error in of_tables:
        yield style.problem(ErrorReport.of_detail(error), part.source)
    if part.HasField("error") and part.error not in of_tables:
        yield style.problem(ErrorReport.of_detail(part.error), part.source)
