from worker.binlog.imagetext cimport ImageText
from worker.binlog.values cimport ColumnCodec
from worker.replicate.batch cimport Batch, KeyState
from worker.rows cimport RowChange


cdef class ImageReader(ImageText):
    cdef object shard
    cdef bint loose
    cdef int passed_over
    cdef int stops
    cdef bint staged
    cdef Py_ssize_t keys
    cdef object drops
    cdef int asked
    cdef int asked_before
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
    cdef bint _next(
        self, bytes events, Py_ssize_t end, int kind, Py_ssize_t first, Py_ssize_t first_present, Py_ssize_t second,
        Py_ssize_t second_present
    )
    cdef bint _dropped(self, int kind)
    cdef int _put(self, Batch batch, dict[bytes, KeyState] keys, bytes key, unsigned char* data, long long pos)
    cdef int _replace(self, Batch batch, dict[bytes, KeyState] keys, bytes key, unsigned char* data, long long pos)
    cdef int _remove(self, Batch batch, dict[bytes, KeyState] keys, bytes key, long long pos)
