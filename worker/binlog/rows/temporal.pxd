from shardmerge.worker.binlog.little_endian cimport little
from shardmerge.worker.binlog.rows.digits cimport big, power, put


cdef Py_ssize_t put_temporal_text(
    unsigned char* out, Py_ssize_t write, unsigned char* data, Py_ssize_t start, Py_ssize_t stop
) noexcept
cdef Py_ssize_t put_date(unsigned char* out, unsigned char* data, Py_ssize_t at)
cdef Py_ssize_t put_datetime(unsigned char* out, unsigned char* data, Py_ssize_t at, bint packed, int scale)
cdef Py_ssize_t put_timestamp(unsigned char* out, unsigned char* data, Py_ssize_t at, bint packed, int scale)
cdef Py_ssize_t put_time(unsigned char* out, unsigned char* data, Py_ssize_t at, bint packed, int scale)
