"""One world for all that differ in names only: the walk of the small world of DDL locks visits it once."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.master.ddl_lock.resolver import Change, Close, Open
from shardmerge.master.ddl_lock.situation import Lock
from tests.unit.master.ddl_lock.ddl_lock_world import Rules, Source, Table, World


def canonical(world: World, rules: Rules) -> World:
    """``world`` with times as ranks, generations counted from the log on, and tables and sources that share a
    history in a fixed order."""
    world = _renamed(world)
    sources = tuple(_sorted(source) if rules.alike[s] else source for s, source in enumerate(world.sources))
    if not rules.all_alike:
        return world._replace(sources=sources)
    owners = (world.lock.owner if world.lock else "", _next_owner(world.pending))
    order = sorted(range(len(sources)), key=lambda s: (*(str(s) == owner for owner in owners), _key(sources[s], s)))
    if order == list(range(len(sources))):
        return world._replace(sources=sources)
    place = {str(s): str(at) for at, s in enumerate(order)}

    def moved(lock: Lock | None) -> Lock | None:
        return replace(lock, owner=place[lock.owner]) if lock else None

    pending = world.pending
    if pending is not None and not isinstance(pending, Close):
        pending = replace(pending, lock=replace(pending.lock, owner=place[pending.lock.owner]))
    ordered = tuple(sources[s]._replace(view=moved(sources[s].view)) for s in order)
    return World(ordered, moved(world.lock), pending, world.log)


def _next_owner(pending: Change | None) -> str:
    return "" if pending is None or isinstance(pending, Close) else pending.lock.owner


def _renamed(world: World) -> World:
    times = sorted({t.since for one in world.sources for t in (*one.tables, *(one.reported or ()))} | {0})
    names = {"": ""}
    for _, name in world.log:
        names.setdefault(name, str(len(names)))
    for one in (world.lock, *(source.view for source in world.sources)):
        if one is not None:
            names.setdefault(one.generation, str(len(names)))
    for source in world.sources:
        for name in (source.reported_ran, source.ran, source.declined, source.reported_declined):
            names.setdefault(name, str(len(names)))
    if times[-1] == len(times) - 1 and all(old == new for old, new in names.items()):
        return world
    rank = {since: n for n, since in enumerate(times)}

    def lock(one: Lock | None) -> Lock | None:
        return replace(one, generation=names[one.generation]) if one else None

    def tables(some: tuple[Table, ...]) -> tuple[Table, ...]:
        return tuple(one._replace(since=rank[one.since]) for one in some)

    pending = world.pending
    if pending is not None and not isinstance(pending, Close | Open):  # what is to be opened is FRESH
        pending = replace(pending, lock=replace(pending.lock, generation=names[pending.lock.generation]))
    sources = tuple(
        one._replace(
            tables=tables(one.tables),
            reported=None if one.reported is None else tables(one.reported),
            reported_ran=names[one.reported_ran],
            ran=names[one.ran],
            declined=names[one.declined],
            reported_declined=names[one.reported_declined],
            view=lock(one.view),
        )
        for one in world.sources
    )
    return World(sources, lock(world.lock), pending, tuple((form, names[name]) for form, name in world.log))


def _sorted(source: Source) -> Source:
    """Tables in the order of what they did and what is reported of them: they differ in nothing else."""
    if len(source.tables) < 2:
        return source
    if source.reported is None:
        return source._replace(tables=tuple(sorted(source.tables)))
    pairs = sorted(zip(source.tables, source.reported, strict=True))
    return source._replace(tables=tuple(pair[0] for pair in pairs), reported=tuple(pair[1] for pair in pairs))


def _key(source: Source, s: int) -> tuple[object, ...]:
    view = source.view
    seen = (view.generation, view.stage.value, view.form, view.owner == str(s), view.forced) if view else ()
    return (
        *source[:1],
        source.reported is None,
        source.reported or (),
        *source[2:4],
        seen,
        source.in_task,
        source.paused,
        source.declined,
        source.reported_declined,
    )
