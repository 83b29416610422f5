from shardmerge.worker.binlog.crc32 cimport Crc32
from shardmerge.worker.binlog.rows.image_scanner cimport ImageScanner
from shardmerge.worker.binlog.rows.literal_buffer cimport LiteralBuffer
from shardmerge.worker.binlog.rows.column_codec cimport ColumnCodec
from shardmerge.worker.binlog.rows.digits cimport cut


cdef class ImageLiterals(ImageScanner):
    cdef object plan
    cdef dict by_slot
    cdef list values
    cdef list written
    cdef list key_codecs
    cdef list source_key_codecs
    cdef bytes hashed
    cdef unsigned int seed
    cdef unsigned int lane
    cdef unsigned int lanes
    cdef unsigned int crc
    cdef LiteralBuffer buffer
    cdef bint _mine(self) noexcept
    cdef int _keep_key(self)
    cdef bint _same_key(self, unsigned char* data)
    cdef bytes _literal(self, ColumnCodec codec, unsigned char* data, bint mapped)
    cdef object _literals(self, unsigned char* data)
    cdef object _source_key(self, unsigned char* data)
    cdef int _fill(self, list[ColumnCodec] codecs, list[bytes] values, unsigned char* data, bint mapped)
    cdef bytes _cut(self, Py_ssize_t size)
    cdef bytes _joined(self, unsigned char* data)
    cdef Py_ssize_t _key(self, unsigned char* data)
    cdef Py_ssize_t _join(self, list[ColumnCodec] codecs, unsigned char* data, bint hashing)
