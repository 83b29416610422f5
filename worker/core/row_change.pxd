cdef class RowChange:
    cdef readonly Py_ssize_t byte
    cdef readonly Py_ssize_t event
    cdef readonly object kind
    cdef readonly object plan
    cdef readonly tuple before
    cdef readonly tuple after
    cdef readonly tuple source_key_before
    cdef readonly tuple source_key_after
