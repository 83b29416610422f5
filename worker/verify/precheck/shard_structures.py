"""Compares the shard tables of one target, of all sources, with each other before anything is copied. Pure.

What decides later is the target table: each shard table must fit it. A missing target is created like the first shard
table of the source that is first; so a target that is made from one of these must fit all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.listed_names import listed
from shardmerge.worker.core.mysql.create_table import widened_type
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, Constant, PartitionId, TablePlan
from shardmerge.worker.target.tables.column_fit import types_that_hold
from shardmerge.worker.target.tables.extracted_keys import created_keys
from shardmerge.worker.target.tables.target_table import column_problems, key_problems, unwritten_problems
from shardmerge.worker.verify.precheck.findings import failed, warned
from shardmerge.worker.verify.precheck.server_differences import collation_is_coarser

_ITEM = "schema_of_shard_tables"
_SHOWN = 5
_FULL_UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_FORMER_NAMES = {"utf8": "utf8mb3"}
_BASIC_UNICODE = frozenset({"utf8", "utf8mb3", "ucs2"})


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """Shard tables of one source with equal structures and rules. ``plan``: of the first of them. ``makes_target``: the
    source would create a missing target like that one, whose columns ``required`` (at the target, in lower case) then
    have neither NULL nor a default. ``checked``: the source is checked; others take part in the comparison only.
    ``json_is_text``: the target's server makes a LONGTEXT of JSON. ``replaced``: collations of the table that the
    target lacks, each with the one that a created table gets."""

    plan: TablePlan
    makes_target: bool
    required: frozenset[str]
    checked: bool
    json_is_text: bool = False
    replaced: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def name(self) -> str:
        table = self.plan.table
        return f"{table.schema}.{table.name} (source {self.plan.source})"


class _Texts(NamedTuple):
    """Two columns of one name that hold text: ``made``, like which the target's would be, and a shard table's."""

    maker: ShardGroup
    made: ColumnPlan
    group: ShardGroup
    item: ColumnPlan


def structure_key(plan: TablePlan) -> tuple[object, ...]:
    """Plans with equal results need the same of their target. Constants differ in their texts only."""
    table = plan.table
    columns = tuple((item.target_name, item.column, _kind_of(item)) for item in plan.columns)
    generated = tuple(column.name for column in table.columns if column.generated)
    return plan.target, columns, generated, plan.key, frozenset(table.unique_keys), plan.transform is not None


def _kind_of(item: ColumnPlan) -> object:
    if isinstance(item.mapping, Constant):
        return Constant
    return PartitionId if isinstance(item.mapping, PartitionId) else item.mapping


def compare_shards(groups: Sequence[ShardGroup], *, exists: bool, widens: bool) -> Iterator[pb.CheckResult]:
    """The findings for one target. ``exists``: the target table does, so each source is compared with it alone.
    ``widens``: it gets each shard table's columns (`shard-mode: optimistic`)."""
    contradicting = dict(_contradictions(groups))
    yield from contradicting.values()
    if any(group.plan.transform is not None for group in groups):
        return
    if widens:
        yield from _waiting(groups)
    if exists:
        return
    makers = [group for group in groups if group.makes_target]
    if not widens:
        yield from _unfit(makers, groups, contradicting)
    yield from _collations(makers, groups)
    yield from _charsets(makers, groups)


def _by_column(groups: Sequence[ShardGroup]) -> Mapping[str, list[tuple[ShardGroup, ColumnPlan]]]:
    found: dict[str, list[tuple[ShardGroup, ColumnPlan]]] = {}
    for group in groups:
        for item in group.plan.columns:
            found.setdefault(item.target_name.lower(), []).append((group, item))
    return found


def _contradictions(groups: Sequence[ShardGroup]) -> Iterator[tuple[str, pb.CheckResult]]:
    """Columns for which no type holds the values of all shard tables, by their names at the target."""
    for name, found in _by_column(groups).items():
        # Equal sets of types are compared once. An intersection of all is empty only if one of two is: the types of
        # decimals are intervals, all others are alone or include each other.
        first: dict[tuple[frozenset[str], bool], tuple[ShardGroup, ColumnPlan]] = {}
        for group, item in found:
            types = types_that_hold(item)
            if types:
                first.setdefault((types, group.checked), (group, item))
        pair = next(
            (
                (one, other)
                for (types, checked), one in first.items()
                for (others, _), other in first.items()
                if checked and not types & others
            ),
            None,
        )
        if pair is None:
            continue
        (group, item), (other, its) = pair
        error = errors.check_data.SHARD_TYPES_CONTRADICT(
            target=_target(groups),
            column=item.target_name,
            table=group.name,
            type=_type_text(item),
            other=other.name,
            other_type=_type_text(its),
        )
        yield name, failed(_ITEM, group.plan.source, error)


def _type_text(item: ColumnPlan) -> str:
    return f"{item.column.name} {widened_type(item)}"


def _target(groups: Sequence[ShardGroup]) -> str:
    plan = groups[0].plan
    return f"{plan.target_schema}.{plan.target_table}"


# --- a target that will be created


def _unfit(
    makers: Sequence[ShardGroup], groups: Sequence[ShardGroup], known: Collection[str]
) -> Iterator[pb.CheckResult]:
    """A failure if no source can create a target that fits all shard tables, a warning if some cannot. ``known``:
    columns that are reported already."""
    bad = [(maker, found) for maker in makers if (found := _problems(maker, groups, known))]
    if not bad:
        return
    maker, found = next((each for each in bad if each[0].checked), bad[0])
    source = next(group.plan.source for group in (maker, *groups) if group.checked)
    shown = "; ".join(f"{other}: {', '.join(what)}" for other, what in list(found.items())[:_SHOWN])
    error = errors.check_data.SHARD_TABLES_DIFFER(target=_target(groups), table=maker.name, differences=shown)
    report = failed if len(bad) == len(makers) else warned
    yield report(_ITEM, source, error)


def _problems(maker: ShardGroup, groups: Sequence[ShardGroup], known: Collection[str]) -> Mapping[str, list[str]]:
    """What does not fit a target that is created like ``maker``, by the shard table's name."""
    target = created_like(maker)
    found: dict[str, list[str]] = {}
    for group in groups:
        if group is maker or not (maker.checked or group.checked):
            continue
        plan = group.plan
        written = {item.target_name.lower(): item for item in plan.columns}
        what = column_problems((item for name, item in written.items() if name not in known), target)
        what += unwritten_problems(maker.required - written.keys())
        what += key_problems(plan, target)
        if what:
            found[group.name] = what
    return found


def created_like(maker: ShardGroup) -> Table:
    """The target table that is created for ``maker``, which has no transform."""
    plan = maker.plan
    names = {item.column.name: item.target_name for item in plan.columns}
    extension = created_keys(plan)
    keys = [tuple(names.get(name, name) for name in key) for key in plan.table.unique_keys]
    return replace(
        plan.table,
        schema=plan.target_schema,
        name=plan.target_table,
        columns=(
            *(_created_column(item, json_is_text=maker.json_is_text) for item in plan.columns),
            *(column for column in plan.table.columns if column.generated),
        ),
        key=(),
        unique_keys=tuple((*key, *extension.of(key)) for key in keys),
    )


def _created_column(item: ColumnPlan, *, json_is_text: bool) -> Column:
    if isinstance(item.mapping, Constant):
        return Column(item.target_name, ValueKind.STRING, "varchar(256)", nullable=False, charset="utf8mb4")
    if json_is_text and item.column.kind is ValueKind.JSON:
        return Column(item.target_name, ValueKind.STRING, "longtext", item.column.nullable, charset="utf8mb4")
    kind = ValueKind.INTEGER if isinstance(item.mapping, PartitionId) else item.column.kind
    return replace(item.column, name=item.target_name, kind=kind, type_text=widened_type(item))


def _texts(makers: Sequence[ShardGroup], groups: Sequence[ShardGroup]) -> Iterator[_Texts]:
    """The columns that hold text in both, without repetitions."""
    columns = _by_column(groups)
    for maker in makers:
        for made in maker.plan.columns:
            seen: set[tuple[str, str]] = set()
            for group, item in columns[made.target_name.lower()]:
                pair = (item.column.collation, item.column.charset)
                is_text = made.column.kind is ValueKind.STRING is item.column.kind
                if is_text and pair not in seen and (maker.checked or group.checked):
                    seen.add(pair)
                    yield _Texts(maker, made, group, item)


def _collations(makers: Sequence[ShardGroup], groups: Sequence[ShardGroup]) -> Iterator[pb.CheckResult]:
    """Texts of keys that another shard table distinguishes, and the created target may not. Those of the same source
    are reported by the item itself."""
    coarser: dict[str, tuple[str, str]] = {}
    for maker, made, group, item in _texts(makers, groups):
        names = {name for key in maker.plan.table.unique_keys for name in key}
        here, there = item.column.collation, maker.replaced.get(made.column.collation, made.column.collation)
        is_other = group.plan.source != maker.plan.source
        if is_other and made.column.name in names and collation_is_coarser(here, there):
            source = maker.plan.source if maker.checked else group.plan.source
            shown = f"{item.column.name} of {group.name} has {here}, a target that is created like {maker.name} {there}"
            coarser.setdefault(made.target_name.lower(), (source, shown))
    for source, shown in coarser.values():
        yield warned("collation", source, errors.check_data.COLLATION_COARSER(target=_target(groups), columns=shown))


def _charsets(makers: Sequence[ShardGroup], groups: Sequence[ShardGroup]) -> Iterator[pb.CheckResult]:
    found: dict[str, tuple[str, str]] = {}
    for maker, made, group, item in _texts(makers, groups):
        here, there = item.column.charset, made.column.charset
        if not maker.plan.text_as_utf8 and _may_lack_characters(here, there):
            source = maker.plan.source if maker.checked else group.plan.source
            shown = f"{made.target_name} is {here} in {group.name}, and {there} if it is created like {maker.name}"
            found.setdefault(made.target_name.lower(), (source, shown))
    if found:
        source = next(iter(found.values()))[0]
        shown = listed([text for _, text in found.values()], _SHOWN)
        error = errors.check_data.SHARD_CHARSETS_DIFFER(target=_target(groups), columns=shown)
        yield warned(_ITEM, source, error)


def _waiting(groups: Sequence[ShardGroup]) -> Iterator[pb.CheckResult]:
    """Columns whose texts have several character sets: shard tables cannot change them without each other. Collations
    do not matter: see worker/ddl/schema_join/collations.py."""
    shown: list[str] = []
    source = ""
    for found in _by_column(groups).values():
        charsets: dict[str, tuple[ShardGroup, ColumnPlan]] = {}
        for group, item in found:
            charset = item.column.charset
            if charset and not item.is_constant and not group.plan.text_as_utf8:
                charsets.setdefault(_FORMER_NAMES.get(charset, charset), (group, item))
        checked = next((group.plan.source for group, _ in found if group.checked), "")
        if len(charsets) > 1 and checked:
            source = source or checked
            texts = (f"{item.column.charset} in {group.name}" for group, item in charsets.values())
            shown.append(f"{found[0][1].target_name} is {' and '.join(texts)}")
    if shown:
        error = errors.check_data.SHARD_CHARSETS_WAIT(target=_target(groups), columns=listed(shown, _SHOWN))
        yield warned(_ITEM, source, error)


def _may_lack_characters(needed: str, present: str) -> bool:
    """Whether a text of the charset ``needed`` may have a character that ``present`` lacks; True when in doubt."""
    if needed in (present, "ascii") or present in _FULL_UNICODE:
        return False
    return not (needed in _BASIC_UNICODE and present in _BASIC_UNICODE)
