cdef class Crc32:
    cdef bytes tables
    cpdef long long of_part(self, object buffer, unsigned char* data, Py_ssize_t start, Py_ssize_t stop)
    cdef unsigned int of(self, unsigned char* data, Py_ssize_t start, Py_ssize_t stop, unsigned int value) noexcept
