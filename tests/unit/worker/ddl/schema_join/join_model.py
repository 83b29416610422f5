"""Tables as CREATE TABLE texts, and what the clauses of an ALTER TABLE make of one: a small server for tests."""

from __future__ import annotations

import re
from functools import cache

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.table_text import Index, read_create_table
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition

COLLATION = "utf8mb4_bin"
_NAME = r"`((?:[^`]|``)*)`"


def text_of(*items: str, options: str = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin") -> str:
    return "CREATE TABLE `t` (\n  " + ",\n  ".join(items) + f"\n) {options}"


def indexes_of(*items: str) -> tuple[Index, ...]:
    return read_create_table(text_of(*items)).secondary


@cache
def shape_of(*items: str, options: str = "ENGINE=InnoDB", collation: str = COLLATION) -> TableDefinition:
    return parse_table_definition(CreateStatement(text_of(*items, options=options), collation))


def named(item: str) -> str:
    """The column of an item, in lower case; "" for what is no column."""
    found = re.match(_NAME, item)
    return found.group(1).lower() if found else ""


def altered(items: tuple[str, ...], clauses: tuple[str, ...]) -> tuple[str, ...]:
    """The items of a table after the clauses; indexes lose a dropped column, as at a server."""
    found = list(items)
    for clause in clauses:
        verb, rest = re.fullmatch(r"(ADD COLUMN|MODIFY COLUMN|DROP COLUMN|DROP INDEX|ADD) (.*)", clause, re.S).groups()  # pyright: ignore
        assert isinstance(rest, str)
        names = [named(item) for item in found]
        match verb:
            case "ADD COLUMN":
                place = re.search(rf" (FIRST|AFTER {_NAME})$", rest)
                rest = rest[: place.start()] if place else rest
                assert named(rest) not in names
                at = max(at for at, name in enumerate(names) if name) + 1
                if place:
                    at = 0 if place.group(1) == "FIRST" else names.index(place.group(2).lower()) + 1
                found.insert(at, rest)
            case "MODIFY COLUMN":
                at = names.index(named(rest))
                place = re.search(rf" (FIRST|AFTER {_NAME})$", rest)
                found[at] = rest[: place.start()] if place else rest
                if place:
                    moved = found.pop(at)
                    behind = [named(item) for item in found]
                    at = 0 if place.group(1) == "FIRST" else behind.index(place.group(2).lower()) + 1
                    found.insert(at, moved)
            case "DROP COLUMN":
                found.pop(names.index(named(rest)))
                found = [each for item in found if (each := _left(item, named(rest)))]
            case "DROP INDEX":
                [gone] = [part.text for part in indexes_of(*found) if part.name.lower() == named(rest)]
                found.remove(gone)
            case _:
                present = {part.name.lower() for part in indexes_of(*found)}
                [part] = indexes_of(rest)
                assert part.name.lower() not in present
                assert set(part.keys) <= set(names)
                found.append(rest)
    return tuple(found)


def _left(item: str, gone: str) -> str:
    """An index without a column, "" when nothing is left."""
    parts = indexes_of(item)
    if not parts or gone not in parts[0].keys:
        return item
    head, _, listed = item.partition(" (")
    left = [each for each in re.findall(rf"{_NAME}(\(\d+\))?", listed) if each[0].lower() != gone]
    return f"{head} ({','.join(f'`{name}`{length}' for name, length in left)})" if left else ""
