"""Arrow, whose modules have no complete types."""

from __future__ import annotations

import importlib
from typing import Any

pa: Any = importlib.import_module("pyarrow")
pc: Any = importlib.import_module("pyarrow.compute")
