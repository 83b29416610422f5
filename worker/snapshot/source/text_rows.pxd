from shardmerge.worker.binlog.rows.literal_buffer cimport LiteralBuffer
from shardmerge.worker.binlog.rows.column_codec cimport ColumnCodec


cdef class RowJoiner:
    cdef list codecs
    cdef LiteralBuffer written
    cdef object test
    cdef bytes places
    cdef list values
    cdef bytes cut_row(self, bytes buffer, Py_ssize_t place, Py_ssize_t end)


cdef Py_ssize_t value_length(unsigned char* data, Py_ssize_t place, Py_ssize_t end, Py_ssize_t column)
