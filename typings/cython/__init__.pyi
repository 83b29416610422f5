"""What the compiled modules use of Cython's pure Python mode, typed as what it is uncompiled."""

import builtins
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")

compiled: builtins.bool

bint: TypeAlias = builtins.bool
uchar: TypeAlias = builtins.int
int: TypeAlias = builtins.int
longlong: TypeAlias = builtins.int
ulonglong: TypeAlias = builtins.int
double: TypeAlias = builtins.float
Py_ssize_t: TypeAlias = builtins.int
uint: TypeAlias = builtins.int
p_uchar: TypeAlias = Any  # bytes or bytearray uncompiled
p_uint: TypeAlias = Any

def declare(kind: type[_T], value: _T) -> _T: ...
def cclass(kind: type[_T]) -> type[_T]: ...
def final(kind: type[_T]) -> type[_T]: ...
def no_gc(kind: type[_T]) -> type[_T]: ...
def cfunc(function: _T) -> _T: ...
def ccall(function: _T) -> _T: ...
def inline(function: _T) -> _T: ...
def exceptval(*, check: builtins.bool) -> Callable[[_T], _T]: ...
def cast(kind: Any, value: Any) -> Any: ...
