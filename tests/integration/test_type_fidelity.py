"""Tests every type that the decoder supports, through the snapshot and the stream, for all four pairs of servers.

The edges of each type (tests/support/all_types.py) are followed by random rows (random_types.py) with all types that
both servers have. Rows of one table exist before the snapshot, the same rows of another one are written to the stream.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.worker.replicate.unit import ReplicateUnit
from shardmerge.worker.unit.contract import Failed, Stopped
from tests.integration.lane_rig import LaneRig
from tests.integration.snapshot_rig import subtask_config
from tests.support import all_types, random_types
from tests.support.database import Database
from tests.support.exact import assert_same_bytes
from tests.support.pair import KINDS, emptied
from tests.support.wait import until

ROWS = 120


@dataclass(frozen=True, slots=True)
class Servers:
    """One server of each kind on each side."""

    sources: dict[str, Database]
    targets: dict[str, Database]


@pytest.fixture(scope="module")
def all_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("fidelity")
    made = Servers(
        {name: kind(folder / f"source-{name}", 100 + number) for number, (name, kind) in enumerate(KINDS.items())},
        {name: kind(folder / f"target-{name}", 200 + number) for number, (name, kind) in enumerate(KINDS.items())},
    )
    everyone = [*made.sources.values(), *made.targets.values()]
    try:
        for server in everyone:
            server.start()
        yield made
    finally:
        for server in everyone:
            server.stop()


@pytest.fixture(params=[(one, other) for one in KINDS for other in KINDS], ids=lambda pair: "-to-".join(pair))
def pair(all_servers: Servers, request: pytest.FixtureRequest) -> tuple[Database, Database]:
    one, other = request.param
    return emptied(all_servers.sources[one]), emptied(all_servers.targets[other])


_LABELS = ",".join(f"'label {number}'" for number in range(300))
_MEMBERS = ",".join(f"'m{number}'" for number in range(64))
_SHAPES = {
    "POINT": "POINT(1 -2.5)",
    "LINESTRING": "LINESTRING(0 0,1 1,1e100 -3)",
    "POLYGON": "POLYGON((0 0,4 0,4 4,0 0),(1 1,2 1,2 2,1 1))",
    "MULTIPOINT": "MULTIPOINT(0 0,1 1)",
    "MULTILINESTRING": "MULTILINESTRING((0 0,1 1),(2 2,3 3,4 5))",
    "MULTIPOLYGON": "MULTIPOLYGON(((0 0,4 0,4 4,0 0)),((5 5,6 5,6 6,5 5)))",
    "GEOMETRYCOLLECTION": "GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))",
}


def _shapes_create(table: str) -> str:
    """Return a table with types of geometries, of which all_types has the general one, and with ENUM and SET whose
    labels need more than one byte."""
    shapes = ", ".join(f"g{number} {kind}" for number, kind in enumerate(_SHAPES))
    return f"CREATE TABLE {table} (id INT PRIMARY KEY, {shapes}, e ENUM({_LABELS}), s SET({_MEMBERS}))"


def _shapes_inserts(table: str) -> tuple[str, ...]:
    shapes = ", ".join(f"ST_GeomFromText('{text}')" for text in _SHAPES.values())
    return (
        f"INSERT INTO {table} VALUES (1, {shapes}, 300, ~0)",
        f"INSERT INTO {table} VALUES (2, {shapes}, 256, 1 << 63)",
        f"INSERT INTO {table} VALUES (3, {', '.join(['NULL'] * len(_SHAPES))}, 255, 0)",
        f"INSERT INTO {table} VALUES (4, {', '.join(['NULL'] * (len(_SHAPES) + 2))})",
    )


def _edges(statements: tuple[str, ...], table: str, target: Database) -> list[str]:
    statements = tuple(statement.replace("d.all_types", table) for statement in statements)
    if target.flavor == "mysql":
        # MySQL's longest TIME has no fraction of a second: it refuses MariaDB's.
        statements = tuple(one.replace("'838:59:59.", "'838:59:58.") for one in statements)
        statements = tuple(one.replace("'-838:59:59.", "'-838:59:58.") for one in statements)
    return list(statements)


@pytest.mark.turns
def test_every_type_arrives_bit_by_bit_through_snapshot_and_stream(
    pair: tuple[Database, Database], tmp_path: Path
) -> None:
    source, target = pair
    without = random_types.STRANGE[target.flavor]

    def fill(when: str) -> None:
        pick = random.Random(17)
        source.execute(
            "SET sql_mode = ''",
            *_edges(all_types.INSERTS, f"shard.edges_{when}", target),
            *_shapes_inserts(f"shard.shapes_{when}"),
            *random_types.inserts(source.flavor, f"shard.random_{when}", pick, ROWS, without=without),
        )

    source.execute(
        "SET sql_mode = ''",
        "CREATE DATABASE shard",
        *(
            statement
            for when in ("before", "after")
            for statement in (
                *_edges((all_types.CREATE,), f"shard.edges_{when}", target),
                _shapes_create(f"shard.shapes_{when}"),
                random_types.create(source.flavor, f"shard.random_{when}", without=without),
            )
        ),
    )
    fill("before")
    config = subtask_config(target, threads=2, chunk_rows=50)
    config.mode = config_pb2.TASK_MODE_ALL
    with LaneRig(source, target, tmp_path, config) as rig:
        run = rig.begin(config)
        until(lambda: isinstance(run.unit, ReplicateUnit) or run.ended, "the snapshot is over")
        assert not run.ended, run.join()
        fill("after")
        run.until_synced()
        _same(source, target)
        source.execute(
            "SET sql_mode = ''",
            *_edges(all_types.CHANGES, "shard.edges_before", target),
            *_edges(all_types.CHANGES, "shard.edges_after", target),
            # Whole rows are transported once more, as UPDATEs with both images.
            *(f"UPDATE shard.random_{when} SET id = id + 1000, ti = NULL WHERE id % 2" for when in ("before", "after")),
            *(f"UPDATE shard.shapes_{when} SET id = id + 10, s = s ^ 5, e = 257" for when in ("before", "after")),
        )
        run.until_synced()
        _same(source, target)
        assert run.stop() == Stopped()


def _same(source: Database, target: Database) -> None:
    for what in ("edges", "shapes", "random"):
        for when in ("before", "after"):
            assert_same_bytes(source, target, f"shard.{what}_{when}", ["id"])


@pytest.mark.parametrize(("one", "column"), [("mysql", "VECTOR(3)"), ("mariadb", "UUID"), ("mariadb", "INET6")])
def test_a_type_that_the_target_lacks_is_refused_with_the_table(
    all_servers: Servers, tmp_path: Path, one: str, column: str
) -> None:
    [other] = set(KINDS) - {one}
    source, target = emptied(all_servers.sources[one]), emptied(all_servers.targets[other])
    source.execute("CREATE DATABASE shard", f"CREATE TABLE shard.t (id INT PRIMARY KEY, c {column})")
    config = subtask_config(target)
    config.mode = config_pb2.TASK_MODE_ALL
    with LaneRig(source, target, tmp_path, config) as rig:
        outcome = rig.begin(config).join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.TARGET_CREATE_REFUSED
    assert "shard.t" in str(outcome.error)
