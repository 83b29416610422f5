from libc.string cimport memmove

from worker.binlog.crc cimport Crc32

cdef Crc32 _CRC
