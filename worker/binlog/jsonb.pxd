from worker.binlog.little cimport little
