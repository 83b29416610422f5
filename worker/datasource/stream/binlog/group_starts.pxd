from shardmerge.worker.binlog.little_endian cimport event_size
