from shardmerge.worker.binlog.rows.image_literals cimport ImageLiterals
from shardmerge.worker.binlog.rows.column_codec cimport ColumnCodec
from shardmerge.worker.core.batch cimport Batch, KeyState
from shardmerge.worker.core.row_change cimport RowChange


cdef class ImageReader(ImageLiterals):
    cdef object shard
    cdef bint may_lack_rows
    cdef int skipped_kinds
    cdef int stop_kinds
    cdef bint staged
    cdef Py_ssize_t keys
    cdef object filters
    cdef int filtered_kinds
    cdef int filtered_before
    cdef list tested
    cdef list old_values
    cdef list new_values
    cdef tuple before
    cdef tuple after
    cdef tuple before_key
    cdef tuple after_key
    cdef int read(
        self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind, Py_ssize_t byte, Py_ssize_t event,
        list[RowChange] rows
    )
    cdef int pick(self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind, long long pos, Batch batch)
    cdef int mark(self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind, bytearray marks, Py_ssize_t place)
    cdef bint _next(
        self, bytes events, Py_ssize_t end, int kind, Py_ssize_t first, Py_ssize_t first_present, Py_ssize_t second,
        Py_ssize_t second_present
    )
    cdef bint _is_filtered_out(self, int kind)
    cdef int _put(self, Batch batch, dict[bytes, KeyState] keys, bytes key, unsigned char* data, long long pos)
    cdef int _replace(self, Batch batch, dict[bytes, KeyState] keys, bytes key, unsigned char* data, long long pos)
    cdef int _remove(self, Batch batch, dict[bytes, KeyState] keys, bytes key, long long pos)
