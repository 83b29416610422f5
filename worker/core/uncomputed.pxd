cdef class UncomputedRow:
    cdef readonly object parts
    cdef readonly object inputs
    cdef readonly object key
    cdef readonly Py_ssize_t size


cdef class UncomputedChange:
    cdef readonly object plan
    cdef readonly str file
    cdef readonly long long pos
    cdef readonly UncomputedRow before
    cdef readonly UncomputedRow after
    cdef readonly bytes before_key
    cdef readonly bytes after_key
    cdef readonly bint owns_before
    cdef readonly bint owns_after
    cdef readonly Py_ssize_t size
    cdef readonly bint has_before
    cdef readonly bytes image


cdef class ChangedRows:
    cdef readonly list changes
    cdef readonly list rows
    cdef readonly list inputs
    cdef list _places


cdef bytes _completed(object parts, object columns, Py_ssize_t row)
