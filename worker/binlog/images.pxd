from worker.binlog.values cimport ColumnCodec
from worker.replicate.batch cimport Batch, KeyState
from worker.binlog.crc cimport Crc32
from worker.rows cimport RowChange


cdef class ImageReader:
    cdef object plan
    cdef object shard
    cdef bint loose
    cdef int passed_over
    cdef int stops
    cdef list values
    cdef list codecs
    cdef list written
    cdef list key_codecs
    cdef list source_key_codecs
    cdef bytes hashed
    cdef Py_ssize_t keys
    cdef unsigned int seed
    cdef unsigned int lane
    cdef unsigned int lanes
    cdef unsigned int crc
    cdef Py_ssize_t at
    cdef bytearray out
    cdef bint partial
    cdef list jsons
    cdef bint staged
    cdef object drops
    cdef list tested
    cdef list tested_values
    cdef int read(
        self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind, Py_ssize_t byte, Py_ssize_t event,
        list[RowChange] rows
    )
    cdef int pick(self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind, long long pos, Batch batch)
    cdef int _loose_move(
        self, Batch batch, dict[bytes, KeyState] keys, bytes old, bytes new, bint was_mine, unsigned char* data,
        long long pos
    )
    cdef int _pick_unkeyed(
        self, bytes events, Py_ssize_t end, int kind, long long pos, Batch batch, Py_ssize_t first, Py_ssize_t second
    )
    cdef int _pick_some(
        self, bytes events, Py_ssize_t end, int kind, long long pos, Batch batch, Py_ssize_t first, Py_ssize_t second
    )
    cdef object _tested(self, unsigned char* data)
    cdef bint _dropped(self, object drops, int kind, object before, object after)
    cdef bint _mine(self) noexcept
    cdef int _keep_key(self)
    cdef bint _same_key(self, unsigned char* data)
    cdef Py_ssize_t _open(self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind)
    cdef Py_ssize_t _second(self, Py_ssize_t first, int kind) noexcept
    cdef Py_ssize_t _present(self, unsigned char* data, Py_ssize_t bitmap)
    cdef int _scan(self, unsigned char* data, Py_ssize_t end, Py_ssize_t bitmap, Py_ssize_t present)
    cdef int _scan_after(self, bytes events, Py_ssize_t end, Py_ssize_t bitmap, Py_ssize_t present)
    cdef bytes _literal(self, ColumnCodec codec, unsigned char* data, bint mapped)
    cdef object _literals(self, unsigned char* data)
    cdef object _source_key(self, unsigned char* data)
    cdef object _tuple(self, list[ColumnCodec] codecs, list[bytes] values, unsigned char* data, bint mapped)
    cdef bytes _cut(self, Py_ssize_t size)
    cdef bytes _joined(self, unsigned char* data)
    cdef Py_ssize_t _key(self, unsigned char* data)
    cdef Py_ssize_t _join(self, list[ColumnCodec] codecs, unsigned char* data, bint hashing)
    cdef unsigned char* _room(self, Py_ssize_t used, Py_ssize_t more)
