cdef class Crc32:
    cdef bytes tables
    cdef unsigned int of(self, unsigned char* data, Py_ssize_t start, Py_ssize_t stop, unsigned int value) noexcept
