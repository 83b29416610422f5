"""Which cases there are for the kind of target that is chosen."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cases.case import read_case
from tests.support.mariadb import MariaDB
from tests.support.tidb import TiDB

TARGET = TiDB if os.environ.get("SHARDMERGE_CASES_TARGET") == "tidb" else MariaDB
"""The kind of the target of all cases."""

FOLDERS = frozenset(
    path.parent
    for path in Path(__file__).parent.glob("*/case.yaml")
    if TARGET is not TiDB or read_case(path.parent).not_on_tidb is None
)

OF_SPARK = frozenset(
    folder for folder in FOLDERS if "transforms:" in (folder / "case.yaml").read_text(encoding="utf-8")
)
"""Spark evaluates their transforms."""
