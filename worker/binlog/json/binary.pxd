from shardmerge.worker.binlog.little_endian cimport little
