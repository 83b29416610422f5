from worker.binlog.literalbuffer cimport LiteralBuffer
from worker.binlog.values cimport ColumnCodec


cdef class RowJoiner:
    cdef list codecs
    cdef LiteralBuffer written
    cdef object test
    cdef bytes places
    cdef list values
    cdef bytes cut_row(self, bytes buffer, Py_ssize_t place, Py_ssize_t end)
