from worker.binlog.crc cimport Crc32
from worker.binlog.images cimport ImageReader
from worker.binlog.little cimport event_end, event_size, u32
from worker.replicate.batch cimport Batch


cdef class _Mapped:
    cdef bytes body
    cdef readonly object head
    cdef ImageReader reader
    cdef bint transactional
    cdef long long stamp
    cdef unsigned long long number


cdef class BlockDecoder:
    cdef object _resolve
    cdef bint _source_keys
    cdef bint _filters
    cdef bint _trying
    cdef str _source
    cdef object _bucket
    cdef object _format
    cdef bytes _id_bytes
    cdef bint _checked
    cdef dict _known
    cdef list _near
    cdef long long _stamp
    cdef _Mapped _changed
    cdef bint _given
    cdef bint _undone
    cdef Py_ssize_t _first_row
    cdef Py_ssize_t _here
    cdef bint _ends_statement
    cdef readonly Py_ssize_t event_end
    cdef public object passed_over
    cdef public list unread
    cdef Py_ssize_t _verify(self, bytes events)
    cdef int _walk(self, bytes events, Py_ssize_t skip, list rows, Batch batch)
    cdef int _group_begins(self, list rows)
    cdef int _table_map(self, bytes events, Py_ssize_t at, Py_ssize_t end)
    cdef unsigned long long _table_id(self, bytes events, Py_ssize_t at, Py_ssize_t end, int code)
    cdef _Mapped _find(self, unsigned long long table_id)
    cdef _Mapped _rows_head(self, bytes events, Py_ssize_t at, Py_ssize_t end, int code)
    cdef int _rows(
        self, bytes events, Py_ssize_t at, Py_ssize_t end, int code, Py_ssize_t ordinal, list rows, Batch batch,
        bint skipped
    )
