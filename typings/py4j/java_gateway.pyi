# The part of Py4J that is used here.
from typing import Any

def is_instance_of(gateway: Any, java_object: Any, java_class: str) -> bool: ...
