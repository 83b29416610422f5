cimport cython

@cython.boundscheck(False)
@cython.wraparound(False)
@cython.locals(data="const unsigned char*", size=Py_ssize_t, at=Py_ssize_t, start=Py_ssize_t,
               length=Py_ssize_t, end=Py_ssize_t, place=Py_ssize_t, count=Py_ssize_t,
               head=cython.int, first=cython.int, row=list, columns=Py_ssize_t)
cpdef tuple split_rows(bytes buffer, Py_ssize_t columns, list rows)
