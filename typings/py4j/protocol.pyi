# The part of Py4J that is used here.
from typing import Any

class Py4JError(Exception): ...

class Py4JJavaError(Py4JError):
    java_exception: Any
