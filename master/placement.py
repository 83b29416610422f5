"""Which worker holds which source: a pure function of sources, live workers and present bindings.

The rules, held after every decision (:func:`violations`, tests/unit/master/test_placement.py):

1. a worker holds at most one source;
2. a source that exists and whose worker lives stays where it is;
3. no enabled source lacks a live worker while a live worker is free;
4. a source whose worker is gone keeps its binding until a free worker takes over, so that the same worker, once back,
   continues with its relay log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Bind:
    """Give ``source`` to ``worker``; it was bound to ``before`` ("": to none)."""

    source: str
    worker: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Unbind:
    """Take ``source`` from ``worker``: the source is gone, or another source has that worker."""

    source: str
    worker: str


Step = Bind | Unbind


def place(sources: Set[str], workers: Set[str], bindings: Mapping[str, str]) -> tuple[Step, ...]:
    """The steps, in the order in which they must be done, from ``bindings`` (source → worker) to rules 1–4.

    ``workers`` are the live ones. The result depends on nothing else, and placing again after the steps
    gives no step.
    """
    kept: dict[str, str] = {}
    unbinds: list[Unbind] = []
    for source, worker in sorted(bindings.items()):
        if source in sources and worker not in kept.values():
            kept[source] = worker
        else:
            unbinds.append(Unbind(source, worker))
    free = free_workers(workers, kept)
    homeless = sorted(source for source in sources if kept.get(source) not in workers)
    binds = [Bind(source, worker, kept.get(source, "")) for source, worker in zip(homeless, free, strict=False)]
    return (*unbinds, *binds)


def free_workers(workers: Set[str], bindings: Mapping[str, str]) -> tuple[str, ...]:
    """Live workers that hold no source, in the order in which they are given one."""
    return tuple(sorted(workers - set(bindings.values())))


def after(bindings: Mapping[str, str], steps: Iterable[Step]) -> dict[str, str]:
    """The bindings once ``steps`` are done."""
    result = dict(bindings)
    for step in steps:
        match step:
            case Bind():
                result[step.source] = step.worker
            case Unbind():
                del result[step.source]
    return result


def violations(sources: Set[str], workers: Set[str], bindings: Mapping[str, str]) -> tuple[str, ...]:
    """What of rules 1 and 3, and of their premises, ``bindings`` breaks; empty when all is well."""
    found: list[str] = []
    holders = sorted(bindings.values())
    found.extend(f"worker {one} holds several sources" for one, two in pairwise(holders) if one == two)
    found.extend(f"{source} is bound but does not exist" for source in sorted(bindings.keys() - sources))
    free = free_workers(workers, bindings)
    if free:
        waiting = sorted(source for source in sources if bindings.get(source) not in workers)
        found.extend(f"{source} waits although worker {free[0]} is free" for source in waiting)
    return tuple(found)
