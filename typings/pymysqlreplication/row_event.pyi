"""What the tests use of mysql-replication."""

class RowsEvent:
    table: str
    timestamp: int
    rows: list[dict[str, dict[str, object]]]

class WriteRowsEvent(RowsEvent): ...
class UpdateRowsEvent(RowsEvent): ...
class DeleteRowsEvent(RowsEvent): ...
