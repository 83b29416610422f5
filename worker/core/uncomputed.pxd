cdef class UncomputedRow:
    cdef readonly tuple parts
    cdef readonly tuple inputs
    cdef readonly tuple key
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


cdef class ChangedRows:
    cdef readonly list changes
    cdef readonly list rows
    cdef list _before
    cdef list _after


cdef bytes _completed(object parts, object columns, Py_ssize_t row)
