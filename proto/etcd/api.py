"""etcd3's messages and service stubs, rebuilt for the installed protobuf.

Only the generated protocol is taken from etcd3: its client's watcher spins without a pause when etcd
is away, knows one endpoint, and its lease has no keep-alive.

etcd3 0.12 ships ``*_pb2.py`` files made by a protoc of 2018; their way of building descriptors was
removed from protobuf 4. Each file still carries its serialized ``FileDescriptorProto`` as a literal
(``serialized_pb=_b('…')``): this module reads these literals without running the files, builds
the message classes on the C implementation, and puts modules with them where etcd3 looks.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

_PACKAGE = "etcd3.etcdrpc"
# In the order of their imports of each other.
_MODULES = ("kv_pb2", "auth_pb2", "rpc_pb2")
_LITERAL = re.compile(r"^ *serialized_pb=_b\(('.*')\)", re.MULTILINE)


def _install() -> None:
    """Make ``import etcd3`` work; to be called before the first one.

    Raises ImportError when etcd3 is missing or its files no longer look as described above.
    """
    folder = _folder()
    # A pool of our own: the files' names ("rpc.proto") are too common for the process-wide one.
    pool = descriptor_pool.DescriptorPool()
    modules = {name: _build(pool, name, folder / f"{name}.py") for name in _MODULES}
    sys.modules.update({f"{_PACKAGE}.{name}": module for name, module in modules.items()})


def _folder() -> Path:
    spec = importlib.util.find_spec("etcd3")  # finds, does not import
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the package etcd3 is not installed")
    return Path(spec.submodule_search_locations[0]) / "etcdrpc"


def _build(pool: descriptor_pool.DescriptorPool, name: str, path: Path) -> ModuleType:
    file = descriptor_pb2.FileDescriptorProto.FromString(_serialized(path))
    pool.Add(file)
    descriptor = pool.FindFileByName(file.name)
    module = ModuleType(f"{_PACKAGE}.{name}", f"Rebuilt from {path}.")
    module.__dict__["DESCRIPTOR"] = descriptor
    for message in descriptor.message_types_by_name.values():
        module.__dict__[message.name] = message_factory.GetMessageClass(message)
    for enum in descriptor.enum_types_by_name.values():
        module.__dict__[enum.name] = enum_type_wrapper.EnumTypeWrapper(enum)
    return module


def _serialized(path: Path) -> bytes:
    """The literal of the keyword argument ``serialized_pb`` of the file's ``FileDescriptor(…)`` call. Parsing the whole
    file takes ten times as long."""
    found = _LITERAL.search(path.read_text(encoding="utf-8"))
    if found is None:
        raise ImportError(f"{path} holds no serialized_pb literal: not the etcd3 this was written for (0.12.0)")
    return str(ast.literal_eval(found.group(1))).encode("latin-1")


_install()

import etcd3.etcdrpc as rpc  # noqa: E402

__all__ = ["rpc"]
