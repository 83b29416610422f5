from shardmerge.worker.binlog.rows.column_codec cimport ColumnCodec
from shardmerge.worker.binlog.rows.digits cimport cut
from shardmerge.worker.binlog.rows.image_literals cimport ImageLiterals
from shardmerge.worker.binlog.rows.literal_buffer cimport LiteralBuffer
from shardmerge.worker.core.batch cimport Batch
from shardmerge.worker.core.uncomputed cimport UncomputedChange, UncomputedRow


cdef class UncomputedReader(ImageLiterals):
    cdef object target
    cdef list columns
    cdef list inputs
    cdef list input_values
    cdef list part_values
    cdef list copied
    cdef list copies
    cdef int pick(self, bytes events, Py_ssize_t at, Py_ssize_t end, int kind, long long pos, Batch batch)
    cdef int _copy(self)
    cdef UncomputedRow _row(self, unsigned char* data, bint with_parts)
    cdef object _inputs(self, UncomputedRow row, unsigned char* data)
    cdef object _parts(self, UncomputedRow row, unsigned char* data)
