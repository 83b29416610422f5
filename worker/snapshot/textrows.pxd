from worker.binlog.values cimport ColumnCodec


cdef class RowJoiner:
    cdef list codecs
    cdef bytearray out
    cdef object test
    cdef bytes places
    cdef list values
    cdef bytes cut_row(self, bytes buffer, Py_ssize_t place, Py_ssize_t end)
    cdef Py_ssize_t _put(self, Py_ssize_t write, bytes literal)
    cdef unsigned char* _room(self, Py_ssize_t used, Py_ssize_t more)
