# Only what this repository uses.
from pyarrow import Schema
from pyspark.sql.types import StructType

def from_arrow_schema(arrow_schema: Schema, prefer_timestamp_ntz: bool) -> StructType: ...
