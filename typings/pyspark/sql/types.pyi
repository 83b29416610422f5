# Only what this repository uses.
class DataType:
    def simpleString(self) -> str: ...

class TimestampType(DataType): ...
class TimestampNTZType(DataType): ...

class StructField:
    name: str
    dataType: DataType
    nullable: bool

class StructType(DataType):
    fields: list[StructField]
