from shardmerge.worker.snapshot.source.text_rows cimport value_length


cdef class ColumnBuffer:
    cdef bytearray held
    cdef Py_ssize_t size
    cdef Py_ssize_t used
    cdef bytearray offsets
    cdef bytearray marks
    cdef Py_ssize_t rows
    cdef Py_ssize_t most_rows
    cdef int make_room(self, Py_ssize_t more)
    cdef int add(self, unsigned char* data, Py_ssize_t place, Py_ssize_t count, int mark)


cdef class ColumnCutter:
    cdef list buffers
    cdef Py_ssize_t columns
    cdef int _row(self, bytes buffer, Py_ssize_t place, Py_ssize_t end)
