from shardmerge.worker.binlog.crc32 cimport Crc32
from shardmerge.worker.binlog.rows.image_reader cimport ImageReader
from shardmerge.worker.binlog.rows.uncomputed.image_rows cimport UncomputedReader
from shardmerge.worker.binlog.little_endian cimport event_end, event_size, u32
from shardmerge.worker.core.batch cimport Batch


cdef class _SeenTable:
    cdef bytes body
    cdef readonly object head
    cdef ImageReader reader
    cdef UncomputedReader uncomputed
    cdef bint transactional
    cdef long long stamp
    cdef unsigned long long number
    cdef Py_ssize_t place


cdef class _GroupRows:
    cdef str _source
    cdef _SeenTable _changed
    cdef bint _released
    cdef bint _can_roll_back
    cdef Py_ssize_t _first_row
    cdef int begin_block(self) noexcept
    cdef int begin(self, list rows) noexcept
    cdef int drop(self) noexcept
    cdef int note(self, _SeenTable table) noexcept


cdef class BlockDecoder:
    cdef object _resolve
    cdef bint _source_keys
    cdef bint _filters
    cdef bint _lenient
    cdef str _source
    cdef object _bucket
    cdef object _format
    cdef bytes _id_bytes
    cdef bint _checked
    cdef dict _known
    cdef list _near
    cdef long long _stamp
    cdef _GroupRows _group
    cdef Py_ssize_t _columns_at
    cdef bint _ends_statement
    cdef readonly Py_ssize_t event_end
    cdef public object skipped_ends
    cdef public list unread
    cdef Py_ssize_t _verify(self, bytes events)
    cdef int _walk(self, bytes events, Py_ssize_t skip, list rows, Batch batch)
    cdef int _group_begins(self, list rows)
    cdef int _control(self, bytes events, Py_ssize_t at, Py_ssize_t end, int code, int treatment, list rows)
    cdef int _table_map(self, bytes events, Py_ssize_t at, Py_ssize_t end)
    cdef unsigned long long _table_id(self, bytes events, Py_ssize_t at, Py_ssize_t end, int code)
    cdef _SeenTable _find(self, unsigned long long table_id)
    cdef _SeenTable _rows_head(self, bytes events, Py_ssize_t at, Py_ssize_t end, int code)
    cdef int _rows(
        self, bytes events, Py_ssize_t at, Py_ssize_t end, int code, Py_ssize_t ordinal, list rows, Batch batch,
        bint skipped
    )
    cdef bint _mark(self, bytes events, Py_ssize_t lanes, bytearray marks)
    cdef int _mark_rows(
        self, bytes events, Py_ssize_t at, Py_ssize_t end, int code, Py_ssize_t place, Py_ssize_t lanes, bytearray marks
    )
