from worker.binlog.values cimport ColumnCodec


cdef class ImageReader:
    cdef object plan
    cdef list codecs
    cdef list written
    cdef list key_codecs
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
    cpdef object read(
        self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind, object byte, object event, list rows
    )
    cpdef object pick(self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind, object pos, object batch)
    cdef Py_ssize_t _open(self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind)
    cdef Py_ssize_t _second(self, Py_ssize_t first, int kind) noexcept
    cdef Py_ssize_t _present(self, unsigned char* data, Py_ssize_t bitmap)
    cdef int _scan(self, unsigned char* data, Py_ssize_t end, Py_ssize_t bitmap, Py_ssize_t present)
    cdef int _scan_after(self, bytes events, Py_ssize_t end, Py_ssize_t bitmap, Py_ssize_t present)
    cdef bytes _literal(self, ColumnCodec codec, unsigned char* data, bint mapped)
    cdef object _literals(self, unsigned char* data)
    cdef object _source_key(self, unsigned char* data)
    cdef bytes _joined(self, unsigned char* data)
    cdef bytes _key(self, unsigned char* data)
    cdef Py_ssize_t _join(self, list[ColumnCodec] codecs, unsigned char* data, bint hashing)
    cdef int _add_crc(self, unsigned char* out, Py_ssize_t start, Py_ssize_t stop)
    cdef unsigned char* _room(self, Py_ssize_t used, Py_ssize_t more)
