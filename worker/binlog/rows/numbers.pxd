from shardmerge.worker.binlog.rows.digits cimport cut, power, put, put_digits


cdef bytes number_literal(bytes text, bint signed_, bint fraction)
cdef Py_ssize_t put_number(
    unsigned char* out, Py_ssize_t write, unsigned char* data, Py_ssize_t start, Py_ssize_t stop, bint signed_,
    bint fraction
) noexcept
cdef Py_ssize_t put_partition_id(
    unsigned char* out, Py_ssize_t write, unsigned char* data, Py_ssize_t start, Py_ssize_t stop,
    unsigned long long prefix, unsigned long long most
) noexcept
cdef bytes real_literal(double value)
cdef bytes decimal_literal(unsigned char* out, unsigned char* data, Py_ssize_t at, int precision, int scale)
