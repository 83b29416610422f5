# Only what this repository uses.

class ReadLimit: ...

class ReadMaxBytes(ReadLimit):
    max_bytes: int
    def __init__(self, max_bytes: int) -> None: ...

class SupportsTriggerAvailableNow:
    def prepareForTriggerAvailableNow(self) -> None: ...
