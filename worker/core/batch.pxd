from shardmerge.worker.core.uncomputed cimport UncomputedChange


cdef class KeyState:
    cdef public bint existed
    cdef public bint existence_unknown
    cdef public object plan
    cdef public bytes image
    cdef public str file
    cdef public long long pos


cdef class Batch:
    cdef readonly int lane
    cdef readonly int lanes
    cdef readonly bint by_shard
    cdef public str file
    cdef readonly Py_ssize_t changes
    cdef readonly Py_ssize_t inserts
    cdef readonly Py_ssize_t deletes
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t size
    cdef readonly dict keyed
    cdef readonly list unkeyed
    cdef readonly list staged
    cdef dict _of_shard
    cdef dict _hashes
    cdef dict _counts
    cdef object _counted
    cdef Py_ssize_t _counted_changes
    cdef Py_ssize_t _counted_inserts
    cdef Py_ssize_t _counted_deletes
    cdef dict[bytes, KeyState] keys_of(self, object plan, object shard)
    cdef int _count_for(self, object plan)
    cdef int put_in(self, dict[bytes, KeyState] keys, object plan, bytes key, bytes image, long long pos)
    cdef int replace_in(self, dict[bytes, KeyState] keys, object plan, bytes key, bytes image, long long pos)
    cdef int remove_in(self, dict[bytes, KeyState] keys, object plan, bytes key, long long pos)
    cdef int upsert_in(
        self, dict[bytes, KeyState] keys, object plan, bytes key, bytes image, bint existing, long long pos
    )
    cdef KeyState _state(self, bint existed, object plan, bytes key, bytes image, long long pos)
    cdef bytes _owned(self, KeyState state, object plan, bytes key, long long pos)
