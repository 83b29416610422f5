# Reads big-endian numbers, writes decimal digits; the caller has checked that the bytes and the room for them exist.

cdef extern from *:
    """
    static const unsigned char shardmerge_digit_pairs[] =
        "00010203040506070809101112131415161718192021222324"
        "25262728293031323334353637383940414243444546474849"
        "50515253545556575859606162636465666768697071727374"
        "75767778798081828384858687888990919293949596979899";
    """
    const unsigned char* pairs "shardmerge_digit_pairs"


cdef inline unsigned long long big(unsigned char* data, Py_ssize_t at, Py_ssize_t size) noexcept:
    cdef unsigned long long value = 0
    cdef Py_ssize_t i
    for i in range(size):
        value = (value << 8) | data[at + i]
    return value


cdef inline unsigned long long power(int digits) noexcept:
    cdef unsigned long long value = 1
    while digits:
        value *= 10
        digits -= 1
    return value


cdef inline Py_ssize_t put(unsigned char* out, Py_ssize_t at, unsigned long long value, int width) noexcept:
    cdef Py_ssize_t stop = at + width
    cdef Py_ssize_t i = stop
    cdef int pair
    while i - at >= 2:
        pair = 2 * (value % 100)
        value = value // 100
        i -= 2
        out[i] = pairs[pair]
        out[i + 1] = pairs[pair + 1]
    if i > at:
        out[at] = 48 + value % 10
    return stop


cdef inline Py_ssize_t put_digits(unsigned char* out, Py_ssize_t at, unsigned long long value) noexcept:
    cdef int width = 1
    cdef unsigned long long rest = value
    while rest >= 10000:
        rest = rest // 10000
        width += 4
    while rest >= 10:
        rest = rest // 10
        width += 1
    return put(out, at, value, width)


cdef inline bytes cut(unsigned char* out, Py_ssize_t start, Py_ssize_t stop):
    return out[start:stop]
