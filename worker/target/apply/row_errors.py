"""Which of a target's error numbers are about the row itself. Pure.

The numbers are from MySQL's "Server Error Message Reference", MariaDB's "MariaDB Error Codes" and TiDB's "Error
Codes and Troubleshooting". Errors that are not listed (connections, locks, disk, privileges, structures, triggers) are
not about one row.
"""

from __future__ import annotations

from pymysql.constants import ER

_ROW_ERRORS = frozenset(
    {
        ER.BAD_NULL_ERROR,  # 1048
        ER.DUP_ENTRY,  # 1062
        1118,  # the row is too large for its page
        1169,  # a unique constraint, without its name
        1264,  # out of range
        1265,  # data truncated
        1292,  # truncated incorrect value
        1300,  # invalid character string
        1364,  # a column that has no default gets no value
        1366,  # incorrect value for the column
        1406,  # data too long
        1416,  # not a geometry value
        1441,  # datetime overflow
        1526,  # no partition for the value
        1586,  # duplicate entry, with the key's name
        1690,  # out of range in an expression: a generated column
        3140,  # invalid JSON text
        3819,  # a check constraint of MySQL
        4025,  # a constraint of MariaDB
        8025,  # TiDB: the row is longer than txn-entry-size-limit
    }
)


def is_row_error(errno: int) -> bool:
    """Whether the statement failed because of a value in it: the same row fails again, other rows do not."""
    return errno in _ROW_ERRORS
