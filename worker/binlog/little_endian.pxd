# Reads little-endian numbers of binlog events; the caller has checked that their bytes exist.

cdef inline Py_ssize_t u32(unsigned char* data, Py_ssize_t at) noexcept:
    cdef Py_ssize_t value = data[at + 3]
    value = (value << 8) | data[at + 2]
    value = (value << 8) | data[at + 1]
    return (value << 8) | data[at]


cdef inline unsigned long long u64(unsigned char* data, Py_ssize_t at) noexcept:
    cdef unsigned long long high = u32(data, at + 4)
    return (high << 32) | <unsigned long long> u32(data, at)


cdef inline Py_ssize_t event_size(unsigned char* data, Py_ssize_t at) noexcept:
    return u32(data, at + 9)


cdef inline Py_ssize_t event_end(unsigned char* data, Py_ssize_t at) noexcept:
    return u32(data, at + 13)


cdef inline unsigned long long little(unsigned char* data, Py_ssize_t at, Py_ssize_t size) noexcept:
    cdef unsigned long long value = 0
    cdef Py_ssize_t i
    for i in range(size - 1, -1, -1):
        value = (value << 8) | data[at + i]
    return value
