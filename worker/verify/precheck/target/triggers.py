"""Finds triggers on shard tables and on target tables: those of a target run for replicated rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Session, rows, text_of
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.verify.precheck.findings import Checklist, abbreviated, failed, warned
from shardmerge.worker.verify.precheck.source.server import ConnectedSource, read_grants

_ITEM = "triggers"

Name = tuple[str, str]


def check_triggers(
    checklist: Checklist, view: ConnectedSource | None, target: Session, plans: Sequence[TablePlan]
) -> None:
    """``view``: None if the source could not be reached. One query at each server, whatever the number of tables."""
    checklist.run(_ITEM, lambda: _triggers(checklist.source, view, target, plans), privilege_of="target_privilege")


def _triggers(
    source: str, view: ConnectedSource | None, target: Session, plans: Sequence[TablePlan]
) -> Iterator[pb.CheckResult]:
    at_target = {plan.target.names for plan in plans}
    found = _read(target, "TRIGGERS", "EVENT_OBJECT_SCHEMA", "EVENT_OBJECT_TABLE", at_target)
    for name, triggers in sorted(found.items()):
        shown = abbreviated(triggers)
        yield failed(_ITEM, source, errors.check_data.TARGET_TRIGGERS(target=".".join(name), triggers=shown))
    existing = sorted(_read(target, "TABLES", "TABLE_SCHEMA", "TABLE_NAME", at_target))
    grants = read_grants(target) if existing else None
    if grants is not None:
        # Without the privilege MySQL shows no trigger at all.
        unseen = [name for name in existing if name not in found and not grants.has("TRIGGER", *name)]
        if unseen:
            grant = "\n".join(
                grants.schema_statement(["TRIGGER"], schema) for schema in sorted({each[0] for each in unseen})
            )
            yield warned(
                _ITEM,
                source,
                errors.check_data.TRIGGERS_UNSEEN(
                    user=grants.account, tables=abbreviated([".".join(name) for name in unseen]), grant=grant
                ),
            )
    if view is not None:
        at_source = {(plan.table.schema, plan.table.name) for plan in plans}
        own = _read(view.session, "TRIGGERS", "EVENT_OBJECT_SCHEMA", "EVENT_OBJECT_TABLE", at_source)
        if own:
            listed = [
                f"{trigger} on {'.'.join(name)}" for name, triggers in sorted(own.items()) for trigger in triggers
            ]
            yield warned(_ITEM, source, errors.check_data.SOURCE_TRIGGERS(source=source, triggers=abbreviated(listed)))


def _read(session: Session, view: str, schema: str, table: str, wanted: Iterable[Name]) -> dict[Name, list[str]]:
    """The names of the triggers of each of these tables that has some; or, of view TABLES, the tables that exist."""
    names = set(wanted)
    schemas = sorted({name[0] for name in names})
    if not schemas:
        return {}
    [(exact,)] = rows(session, "SELECT @@GLOBAL.lower_case_table_names = 0")
    known = names if exact else {(name[0].lower(), name[1].lower()) for name in names}
    label = "TRIGGER_NAME" if view == "TRIGGERS" else "TABLE_NAME"
    answer = rows(
        session, f"SELECT {schema}, {table}, {label} FROM information_schema.{view} WHERE {schema} IN %s", (schemas,)
    )
    found: dict[Name, list[str]] = {}
    for row in answer:
        name = (text_of(row[0]), text_of(row[1]))
        if (name if exact else (name[0].lower(), name[1].lower())) in known:
            found.setdefault(name, []).append(text_of(row[2]))
    return {name: sorted(each) for name, each in found.items()}
