cdef Py_ssize_t put_quoted(
    unsigned char* out, Py_ssize_t write, unsigned char* data, Py_ssize_t start, Py_ssize_t stop, bint only_ascii
) noexcept
cdef Py_ssize_t put_hexadecimal(
    unsigned char* out, bytes opening, unsigned char* data, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t size
) noexcept
