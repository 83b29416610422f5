cdef extern from "crc32_fold.h" nogil:
    bint crc_can_fold() noexcept
    unsigned int crc_fold(const unsigned char* data, size_t size, unsigned int value) noexcept


cdef class Crc32:
    cdef bytes tables
    cdef bint folds
    cpdef long long of_part(self, object buffer, unsigned char* data, Py_ssize_t start, Py_ssize_t stop)
    cdef unsigned int of(self, unsigned char* data, Py_ssize_t start, Py_ssize_t stop, unsigned int value) noexcept
    cdef unsigned int _folded(self, unsigned char* data, Py_ssize_t start, Py_ssize_t stop) noexcept
