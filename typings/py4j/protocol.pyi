# The part of Py4J that is used here.
from typing import Any

class Py4JJavaError(Exception):
    java_exception: Any
