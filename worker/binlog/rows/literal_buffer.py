# cython: language_level=3, boundscheck=False, wraparound=False
"""A growing buffer in which the literals of a row are written one after the other.

Compiled by Cython (types of the class in worker/binlog/rows/literal_buffer.pxd); plain Python where it is not compiled.
"""

from __future__ import annotations

import cython

_ROOM = cython.declare(cython.int, 1024)
_KEPT = cython.declare(cython.Py_ssize_t, 1 << 20)


@cython.final
@cython.cclass
class LiteralBuffer:
    """Belongs to one writer, which writes through the pointer that :meth:`room` returns. One thread at a time."""

    def __init__(self) -> None:
        self.held = bytearray(_ROOM)
        self.size = int(_ROOM)

    @cython.cfunc
    def start(self) -> cython.p_uchar:
        """The buffer for the next row; a huge one is not kept."""
        if self.size > _KEPT:
            self.held = bytearray(_ROOM)
            self.size = len(self.held)
        out: cython.p_uchar = self.held
        return out

    @cython.cfunc
    def room(self, used: cython.Py_ssize_t, more: cython.Py_ssize_t) -> cython.p_uchar:
        """The buffer, with room for ``more`` bytes and a comma after the ``used`` ones. Earlier pointers become
        invalid."""
        if self.size < used + more + 1:
            self.held = self.held[:used] + bytearray(max(used, more) + more + int(_ROOM))
            self.size = len(self.held)
        out: cython.p_uchar = self.held
        return out

    @cython.cfunc
    def put(self, used: cython.Py_ssize_t, literal: bytes) -> cython.Py_ssize_t:
        """Write it after the ``used`` bytes; returns how many are used now. Earlier pointers become invalid."""
        size: cython.Py_ssize_t = len(literal)
        out: cython.p_uchar = self.room(used, size)
        plain: cython.p_uchar = literal
        at: cython.Py_ssize_t
        if cython.compiled:
            for at in range(size):
                out[used + at] = plain[at]
        else:
            out[used : used + size] = literal
        return used + size

    @cython.cfunc
    def cut(self, used: cython.Py_ssize_t) -> bytes:
        """A copy of the ``used`` bytes."""
        out: cython.p_uchar = self.held
        if cython.compiled:
            return out[0:used]
        return bytes(out[0:used])
