"""Imports a user's function."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import FunctionType

import pyarrow as pa

from shardmerge.worker.core.table_plan import PythonFunction

BatchFunction = Callable[[pa.RecordBatch], object]


class Unusable(Exception):
    """Why a function cannot be called; the text is for the user."""


def load(function: PythonFunction) -> BatchFunction:
    """Import the function. Raises :class:`Unusable`.

    It must be a function that the module itself defines: another module's, which it has imported, is not what the
    operator has allowed.
    """
    try:
        module = importlib.import_module(function.module)
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        missing = f": {error.name}" if isinstance(error, ModuleNotFoundError) else ""
        raise Unusable(f"module {function.module} cannot be imported: {type(error).__name__}{missing}") from error
    found = vars(module).get(function.name)
    if not isinstance(found, FunctionType) or found.__module__ != function.module:
        raise Unusable(f"module {function.module} defines no function {function.name}")
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
        raise Unusable(f"{function} does not return its result at once")
    try:
        inspect.signature(found).bind(None)
    except TypeError as error:
        raise Unusable(f"{function} cannot be called with one argument, the batch") from error
    return found
