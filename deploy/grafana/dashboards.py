"""All dashboards, and their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deploy.grafana.cluster import CLUSTER
from deploy.grafana.grafana_json import text_of
from deploy.grafana.overview import OVERVIEW
from deploy.grafana.source import SOURCE_DASHBOARD
from deploy.grafana.task import TASK_DASHBOARD

DASHBOARDS = (OVERVIEW, TASK_DASHBOARD, SOURCE_DASHBOARD, CLUSTER)
FOLDER = Path(__file__).resolve().parent / "dashboards"


def files() -> Mapping[str, str]:
    """The text of each file by its name."""
    return {f"{dashboard.name}.json": text_of(dashboard) for dashboard in DASHBOARDS}


def write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
