"""Draws what happens in a simulation: the actions at the sources, and which faults there are."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from tests.simulator.source_log import FIRST, Action, ActionKind, Columns, SourceServer, name_of, run_at

FaultKind = Literal["kill", "answer", "pause", "master", "unlock", "skip", "slow"]
FAULTS: tuple[FaultKind, ...] = ("kill", "answer", "pause", "master", "unlock", "skip", "slow")


@dataclass(frozen=True, slots=True)
class History:
    """``seed``: of the order of all steps. ``script``: the clauses of the ALTER TABLEs; ``tables``: how many each
    source has at first; ``actions``: by source; ``faults``: the kinds that there are, for ``steps`` steps."""

    seed: int
    script: tuple[str, ...]
    tables: tuple[int, ...]
    lanes: int
    actions: tuple[tuple[Action, ...], ...]
    faults: tuple[FaultKind, ...]
    steps: int

    def __str__(self) -> str:
        lines = [f"script {self.script}, {self.lanes} lane(s), faults {self.faults} for {self.steps} steps"]
        lines += [f"order of steps: {self.seed}"]
        for source, count in enumerate(self.tables):
            server = SourceServer(source, count, self.script)
            for action in self.actions[source]:
                server.execute(action)
            lines.append(f"s{source}, {count} table(s):")
            lines += [f"  {at}: {_text(event)}" for at, event in enumerate(server.log)]
        return "\n".join(lines)


def _text(event: object) -> str:
    statement = getattr(event, "statement", None)
    return statement.text if statement is not None else str(event)


def draw(seed: int, *, longer: bool = False) -> History:
    """Draw a history. ``longer``: with more tables, statements and rows."""
    dice = random.Random(seed)
    script = _draw_script(dice, dice.randint(1, 4 if longer else 3))
    tables = tuple(dice.choice((1, 1, 2, 4 if longer else 2)) for _ in range(dice.choice((2, 2, 3))))
    actions = tuple(_draw_actions(dice, source, count, script, longer=longer) for source, count in enumerate(tables))
    chosen: tuple[FaultKind, ...] = tuple(
        kind for kind in FAULTS if dice.random() < (0.15 if kind in ("unlock", "skip") else 0.6)
    )
    return History(
        dice.getrandbits(32),
        script,
        tables,
        dice.choice((1, 2)),
        actions,
        chosen,
        dice.randrange(300 if longer else 150),
    )


def _draw_script(dice: random.Random, length: int) -> tuple[str, ...]:
    columns, found = FIRST, list[str]()
    for _ in range(length):
        clauses = _draw_clauses(dice, columns)
        columns = run_at(columns, f"ALTER TABLE t0 {clauses}")
        found.append(clauses)
    return tuple(found)


def _draw_clauses(dice: random.Random, columns: Columns) -> str:
    own = [column for column in columns if column != "id"]
    new = [column for column in "abc" if column not in columns]
    chance = dice.random()
    if own and chance < 0.3:
        return f"DROP COLUMN {dice.choice(own)}"
    if chance < 0.4 or not new:
        return "MODIFY COLUMN id BIGINT"
    if own and chance < 0.5:
        return f"ADD COLUMN {dice.choice(new)} BIGINT, DROP COLUMN {dice.choice(own)}"
    return f"ADD COLUMN {dice.choice(new)} BIGINT"


_OFTEN: dict[ActionKind, int] = {"insert": 6, "update": 3, "delete": 2, "alter": 6}
_KINDS: tuple[ActionKind, ...] = tuple(kind for kind, times in _OFTEN.items() for _ in range(times))
_LAST: tuple[ActionKind, ...] = ("alter", "alter", "insert")
_RARE: tuple[ActionKind, ...] = ("create", "like", "drop", "truncate", "rename", "rename", "swap")


def _draw_actions(
    dice: random.Random, source: int, tables: int, script: tuple[str, ...], *, longer: bool
) -> tuple[Action, ...]:
    server, found = SourceServer(source, tables, script), list[Action]()
    names, kinds = [name_of(number) for number in range(tables)], _KINDS
    if dice.random() < 0.5:
        kinds += _RARE

    def execute(action: Action) -> None:
        before = len(server.log)
        server.execute(action)
        if len(server.log) > before:
            found.append(action)

    for _ in range(dice.randrange(60 if longer else 14)):
        kind: ActionKind = dice.choice(kinds)
        name = dice.choice(sorted(server.shards))
        match kind:
            case "create" | "like":
                names.append(name_of(len(names)))
                execute(Action(kind, names[-1], name))
            case "rename":
                if dice.random() < 0.5:
                    names.append(name_of(len(names)))
                execute(Action(kind, name, dice.choice(names[-3:])))
            case _:
                execute(Action(kind, name, dice.choice(names), dice.randrange(8)))
    if dice.random() < 0.85:
        while waiting := sorted(name for name, level in server.levels().items() if level < len(script)):
            execute(Action(dice.choice(_LAST), dice.choice(waiting)))
    return tuple(found)
