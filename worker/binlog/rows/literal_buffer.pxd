cdef class LiteralBuffer:
    cdef bytearray held
    cdef Py_ssize_t size
    cdef unsigned char* start(self)
    cdef unsigned char* room(self, Py_ssize_t used, Py_ssize_t more)
    cdef Py_ssize_t put(self, Py_ssize_t used, bytes literal)
    cdef bytes cut(self, Py_ssize_t used)
