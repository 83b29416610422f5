class StringMark:
    line: int
    column: int
    index: int

class YAMLError(Exception): ...

class MarkedYAMLError(YAMLError):
    context: str | None
    context_mark: StringMark | None
    problem: str | None
    problem_mark: StringMark | None
