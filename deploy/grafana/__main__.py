"""Writes the dashboards: ``python -m deploy.grafana [folder]``."""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.grafana.dashboards import FOLDER, write

write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
