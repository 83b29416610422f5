"""What the tests use of mysql-replication."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

class BinLogStreamReader:
    log_file: str
    log_pos: int
    def __init__(
        self,
        connection_settings: Mapping[str, object],
        server_id: int,
        *,
        only_events: Sequence[type[Any]] | None = ...,
        only_schemas: Sequence[str] | None = ...,
        only_tables: Sequence[str] | None = ...,
        blocking: bool = ...,
        log_file: str | None = ...,
        log_pos: int | None = ...,
        end_log_pos: int | None = ...,
        resume_stream: bool = ...,
        is_mariadb: bool = ...,
        ignore_decode_errors: bool = ...,
    ) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def close(self) -> None: ...
