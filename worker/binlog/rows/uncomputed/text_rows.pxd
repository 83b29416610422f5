from shardmerge.worker.binlog.rows.column_codec cimport ColumnCodec
from shardmerge.worker.binlog.rows.literal_buffer cimport LiteralBuffer
from shardmerge.worker.core.uncomputed cimport UncomputedRow


cdef class UncomputedTexts:
    cdef list reading
    cdef list columns
    cdef list places
    cdef list inputs
    cdef tuple key
    cdef LiteralBuffer written
    cdef UncomputedRow _row(self, object values)
    cdef object _parts(self, UncomputedRow row, object values)
