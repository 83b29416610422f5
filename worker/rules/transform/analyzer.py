"""Analyses a table's transform with Spark: which columns it keeps, which it computes, and their types.

It only calls the driver's JVM, without any row. The result depends on the arguments alone.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from shardmerge.proto import errors
from shardmerge.proto.config.rules.transform import STAR, TransformRefused, split_items
from shardmerge.worker.core.table import Column
from shardmerge.worker.rules.transform.permitted import check_filter, check_item, check_plan
from shardmerge.worker.rules.transform.session import names_clock, relation
from shardmerge.worker.rules.transform.spark_errors import error_summary, lacks_resources
from shardmerge.worker.rules.transform.values import ROW, BadValue, arrow_type, computed_column

_NAME = re.compile(r"[^\W\d]\w*")
_MOST_NAME = 64


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of the result: the input column ``source`` under the name ``name``; or, if that is -1, ``item`` of the
    SELECT list, with the type of ``column``."""

    name: str
    source: int
    item: str = ""
    column: Column | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """``inputs``: indexes of the columns that computed columns and the filter use; ``has_star``: other columns are
    kept."""

    outputs: tuple[OutputColumn, ...]
    inputs: tuple[int, ...]
    has_star: bool


@lru_cache(maxsize=1024)
def analyse(columns: tuple[Column, ...], projection: str, filter_: str) -> Analysis:
    """``columns``: those of the source table that are written. Raises :class:`TransformRefused`."""
    items = split_items(projection) if projection.strip() else (STAR,)
    return _Analyzer(columns).analysis(items, filter_.strip())


@contextmanager
def _with_expression(text: str) -> Generator[None]:
    """An error of Spark in the block is raised as an error that names the expression ``text``."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if lacks_resources(error):
            raise errors.replicate.EVALUATION_LOST(reason=error_summary(error)) from error
        raise TransformRefused(error_summary(error, (text,))) from error


class _Analyzer:
    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        if any(column.name.lower() == ROW for column in columns):
            raise TransformRefused(f"a column is named {ROW}")
        fields = [pa.field(each.name, arrow_type(each) or pa.binary(), each.nullable) for each in columns]
        self._rows = relation(pa.schema(fields))
        attributes = self._rows._jdf.queryExecution().analyzed().output()
        self._places = {attributes.apply(at).exprId().id(): at for at in range(attributes.size())}
        self._given: set[int] = set()

    def analysis(self, items: tuple[str, ...], condition: str) -> Analysis:
        if condition:
            with _with_expression(condition):
                check_filter(condition)
                plan = self._rows.where(condition)._jdf.queryExecution().analyzed()
                self._need(plan, "Filter", condition)
                self._name(plan.condition(), condition)
        found: list[OutputColumn | None] = []
        for item in items:
            with _with_expression(item):
                found += [None] if item == STAR else self._outputs(item)
        named = [output for output in found if output is not None]
        taken = {output.name.lower() for output in named}
        passing = {output.source for output in named}
        rest = [
            OutputColumn(column.name, at)
            for at, column in enumerate(self._columns)
            if at not in passing and column.name.lower() not in taken
        ]
        outputs: list[OutputColumn] = []
        for output in found:
            outputs += rest if output is None else [output]
        _check(outputs)
        return Analysis(tuple(outputs), tuple(sorted(self._given)), STAR in items)

    def _outputs(self, item: str) -> Iterator[OutputColumn]:
        check_item(item)
        frame = self._rows.selectExpr(item)
        plan = frame._jdf.queryExecution().analyzed()
        self._need(plan, "Project", item)
        listed, fields = plan.projectList(), frame.schema.fields
        for at, field in enumerate(fields):
            expression = listed.apply(at)
            source = self._source(expression)
            if source >= 0:
                is_same = field.name.lower() == self._columns[source].name.lower()
                yield OutputColumn(self._columns[source].name if is_same else field.name, source)
                continue
            if len(fields) > 1:
                raise TransformRefused(f"{item}: an expression makes one column")
            self._name(expression, item)
            yield OutputColumn(field.name, -1, item, self._typed(field, item))

    def _typed(self, field: Any, item: str) -> Column:
        if not _NAME.fullmatch(field.name) or len(field.name) > _MOST_NAME:
            raise TransformRefused(f"{item}: give the column a name with AS")
        try:
            return computed_column(field.name, field.dataType.simpleString(), nullable=field.nullable)
        except BadValue as reason:
            raise TransformRefused(f"{item}: {reason}") from reason

    def _source(self, expression: Any) -> int:
        """The index of the column that an expression is, under any name; -1: it is not a column."""
        kind = expression.getClass().getSimpleName()
        if kind == "Alias":
            expression = expression.child()
            kind = expression.getClass().getSimpleName()
        return self._places[expression.exprId().id()] if kind == "AttributeReference" else -1

    def _need(self, plan: Any, kind: str, text: str) -> None:
        """Require an expression over one row: no aggregate, window or generator."""
        of = plan.getClass().getSimpleName(), plan.child().getClass().getSimpleName()
        if of != (kind, "LocalRelation"):
            raise TransformRefused(f"{text} is not an expression over one row alone")
        check_plan(plan, text)
        if names_clock(plan):
            raise TransformRefused(f"{text}: a text that it takes for a date or time is a word like 'today' or 'now'")

    def _name(self, expression: Any, text: str) -> None:
        """Remember the columns that an expression uses."""
        references = expression.references().toSeq()
        for at in range(references.size()):
            place = self._places[references.apply(at).exprId().id()]
            column = self._columns[place]
            if arrow_type(column) is None:
                kind = f"{column.type_text} {column.charset}".strip()
                raise TransformRefused(f"{text} uses {column.name}: columns of type {kind} can only be kept unchanged")
            self._given.add(place)


def _check(outputs: list[OutputColumn]) -> None:
    names: set[str] = set()
    sources: set[int] = set()
    for output in outputs:
        if output.name.lower() in names:
            raise TransformRefused(f"two columns are named {output.name}")
        if output.source >= 0 and output.source in sources:
            raise TransformRefused(f"column {output.name} occurs twice")
        names.add(output.name.lower())
        sources.add(output.source)
