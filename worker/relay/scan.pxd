from libc.string cimport memmove

from worker.binlog.crc cimport Crc32
from worker.binlog.little cimport event_end, event_size, u32, u64

cdef Crc32 _CRC
