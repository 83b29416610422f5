from shardmerge.worker.binlog.little_endian cimport little
from shardmerge.worker.binlog.rows.column_codec cimport ColumnCodec


cdef class ImageScanner:
    cdef list codecs
    cdef Py_ssize_t at
    cdef bint partial
    cdef list jsons
    cdef Py_ssize_t _open(self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind)
    cdef Py_ssize_t _second(self, Py_ssize_t first, int kind) noexcept
    cdef Py_ssize_t _present(self, unsigned char* data, Py_ssize_t bitmap)
    cdef int _scan(self, unsigned char* data, Py_ssize_t end, Py_ssize_t bitmap, Py_ssize_t present)
    cdef int _scan_after(self, bytes events, Py_ssize_t end, Py_ssize_t bitmap, Py_ssize_t present)
