"""Draws the pictures of the dashboards for the documentation: ``python -m tests.support.dashboard_pictures``.

Real servers and daemons copy and replicate for some minutes, with a backlog, a sharding DDL that waits and a pause; a
real Prometheus records them.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from deploy.grafana.dashboards import DASHBOARDS
from deploy.grafana.model import Query
from deploy.grafana.picture import Line, picture
from tests.support.prometheus import Prometheus
from tests.support.world import World
from tests.support.writer import Writer

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "img"
_TASK = "orders"
_STEPS = 120


def scenario(world: World) -> None:
    """Some minutes in the life of a task."""
    family = world.family(_TASK, tables=4)
    shards = family.create(30_000)
    time.sleep(10)
    world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    world.cluster.wait_replicating(_TASK)
    with Writer(shards, threads=2) as writer:
        time.sleep(40)
        with closing(world.target.connect()) as session:
            with session.cursor() as cursor:
                cursor.execute(f"LOCK TABLES {_TASK}.orders READ")
            time.sleep(15)
        time.sleep(15)
        writer.pause()
        statements = [f"ALTER TABLE {shard.name} ADD COLUMN gift TINYINT NOT NULL DEFAULT 0" for shard in shards]
        for shard, statement in zip(shards[1:], statements[1:], strict=True):
            with closing(shard.connect()) as session, session.cursor() as cursor:
                cursor.execute(statement)
        writer.resume()
        time.sleep(20)
        with closing(shards[0].connect()) as session, session.cursor() as cursor:
            cursor.execute(statements[0])
        time.sleep(20)
        world.cluster.dmctl("pause-task", _TASK)
        time.sleep(10)
        world.cluster.dmctl("resume-task", _TASK)
        time.sleep(25)


def lines(prometheus: Prometheus, query: Query, begin: float, end: float) -> Sequence[Line]:
    """The series of a query under its legend."""
    text = query.expression.replace("$__rate_interval", "20s")
    text = re.sub(r"\$(task|source_id)\b", ".*", text)
    found: list[Line] = []
    for series in prometheus.ranges(text, begin, end, (end - begin) / _STEPS):
        labels: dict[str, str] = series["metric"]
        legend = query.legend
        for name in re.findall(r"\{\{(\w+)\}\}", legend):
            legend = legend.replace(f"{{{{{name}}}}}", labels.get(name, ""))
        found.append(Line(legend, [(float(at), float(value)) for at, value in series["values"]], labels))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="shardmerge-pictures-") as folder:
        world = World(Path(folder))
        prometheus = Prometheus(Path(folder) / "prometheus", world.cluster.masters, world.cluster.workers)
        try:
            world.start()
            prometheus.start()
            begin = time.time()
            scenario(world)
            end = time.time()
            for dashboard in DASHBOARDS:
                drawn = picture(dashboard, lambda query: lines(prometheus, query, begin, end), (begin, end))
                (IMAGES / f"dashboard-{dashboard.name}.svg").write_text(drawn, encoding="utf-8")
        finally:
            prometheus.stop()
            world.stop()


if __name__ == "__main__":
    main()
