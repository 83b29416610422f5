# Only what this repository uses.
import logging

class PySparkLogger(logging.Logger):
    @staticmethod
    def getLogger(name: str) -> PySparkLogger: ...
