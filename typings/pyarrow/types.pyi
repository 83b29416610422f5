# Only what this repository uses.
from pyarrow import DataType

def is_decimal(t: DataType) -> bool: ...
