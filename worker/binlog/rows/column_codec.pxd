from shardmerge.worker.binlog.little_endian cimport little
from shardmerge.worker.binlog.rows.digits cimport big, cut, put_digits
from shardmerge.worker.binlog.rows.numbers cimport (
    decimal_literal, number_literal, put_number, put_partition_id, real_literal
)
from shardmerge.worker.binlog.rows.temporal cimport put_date, put_datetime, put_temporal_text, put_time, put_timestamp
from shardmerge.worker.binlog.rows.text_literals cimport put_hexadecimal, put_quoted


cdef class ColumnCodec:
    cdef int kind
    cdef Py_ssize_t start
    cdef Py_ssize_t stop
    cdef Py_ssize_t old_start
    cdef Py_ssize_t old_stop
    cdef Py_ssize_t kept_start
    cdef Py_ssize_t kept_stop
    cdef bint is_json
    cdef bint old_json
    cdef int fixed
    cdef int length_bytes
    cdef int slot
    cdef int key_slot
    cdef bint unsigned
    cdef bint packed
    cdef int precision
    cdef int scale
    cdef Py_ssize_t pad
    cdef bint mapped
    cdef bint constant
    cdef bytes absent
    cdef bint partition
    cdef unsigned long long id_prefix
    cdef unsigned long long id_most
    cdef int id_bits
    cdef bytes introducer
    cdef bint quotable
    cdef bint source_quotable
    cdef bint source_only_ascii
    cdef bint only_ascii
    cdef object characters
    cdef bint one_code
    cdef bytes before
    cdef bytes after
    cdef list labels
    cdef bytearray scratch
    cdef readonly object column
    cdef object table
    cdef object source
    cpdef bytes quoted(self, bytes text)
    cpdef bytes of_text(self, bytes text, bint mapped)
    cdef bytes _of_text(self, bytes text, bint mapped)
    cdef bytes of_wire(self, unsigned char* data, Py_ssize_t start, Py_ssize_t stop, bint mapped)
    cdef bytes _json(self, unsigned char* data, Py_ssize_t start, Py_ssize_t stop)
    cdef Py_ssize_t most_bytes(self)
    cdef Py_ssize_t put_wire(self, unsigned char* out, Py_ssize_t write, unsigned char* data)
    cdef Py_ssize_t most_text_bytes(self, Py_ssize_t size)
    cdef Py_ssize_t put_text(
        self, unsigned char* out, Py_ssize_t write, unsigned char* data, Py_ssize_t start, Py_ssize_t stop
    )
    cdef bytes _integer(self, unsigned char* data, Py_ssize_t at, Py_ssize_t size, bint mapped)
    cdef Py_ssize_t _put_integer(
        self, unsigned char* out, Py_ssize_t write, unsigned char* data, Py_ssize_t at, Py_ssize_t size, bint mapped
    )
    cdef bytes _partition(self, bytes digits)
    cdef bytes _label(self, unsigned long long index)
    cdef bytes _members(self, unsigned long long mask)
    cdef bytes _string(self, unsigned char* data, Py_ssize_t start, Py_ssize_t stop, bint mapped)
    cdef bytes _mapped_text(self, bytes text)
    cdef bytes _utf8(self, object characters, bytes value)
    cdef bytes _text_literal(self, unsigned char* data, Py_ssize_t start, Py_ssize_t stop)
    cdef unsigned char* _room(self, Py_ssize_t size)
    cdef bytes _hexadecimal(
        self, unsigned char* data, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t pad, bytes opening
    )
