ROWS: int
END: int
FAILED: int

def split_rows(buffer: bytes, columns: int, rows: list[list[bytes | None]]) -> tuple[int, int]: ...
