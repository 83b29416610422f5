from libc.string cimport memmove

from shardmerge.worker.binlog.crc32 cimport Crc32
from shardmerge.worker.binlog.little_endian cimport event_end, event_size, u32, u64

cdef Crc32 _CRC
