"""The parts of google-re2 that are used."""

class error(Exception): ...

class Options:
    case_sensitive: bool
    log_errors: bool
    max_mem: int
    never_capture: bool

class _Match:
    def group(self, group: int = ..., /) -> str | None: ...
    def groups(self) -> tuple[str | None, ...]: ...

class _Regexp:
    @property
    def groups(self) -> int: ...
    def search(self, text: str, /) -> _Match | None: ...

def compile(pattern: str, options: Options | None = ...) -> _Regexp: ...
