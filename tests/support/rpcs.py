"""Lists every RPC of the program's services, so that a test of all of them includes a new one by itself."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import shardmerge.proto

_OF_MASTER = ("Master", "Compare")
OF_RUN = ("Relay", "CompareDesk")
"""Services for the tasks of a run, which accept the secret of the run only."""
OF_EVERYONE = ("Identity",)
"""Services that each daemon has, for callers that are not known yet."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """``service``: its short name; ``of_master``: a master has it, else a worker."""

    path: str
    descriptor: MethodDescriptor
    service: str

    @property
    def of_master(self) -> bool:
        return self.service in _OF_MASTER


def all_rpcs() -> list[Rpc]:
    """Return the RPCs of all services that the .proto files define."""
    found: list[Rpc] = []
    for module in pkgutil.iter_modules(shardmerge.proto.__path__):
        if module.name.endswith("_pb2"):
            file: Any = importlib.import_module(f"shardmerge.proto.{module.name}")
            for service in file.DESCRIPTOR.services_by_name.values():
                found += [Rpc(f"/{service.full_name}/{each.name}", each, service.name) for each in service.methods]
    assert {rpc.service for rpc in found} >= {"Master", "Compare", "Worker", "WorkerCompare", *OF_RUN, *OF_EVERYONE}
    return found


def filled(kind: Descriptor, values: dict[str, Any]) -> Message:
    """Return a message in which every field with a name of ``values``, also in messages within it, has that value."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if field.name in values and field.type != FieldDescriptor.TYPE_MESSAGE:
            value = values[field.name]
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
        elif field.name == "who" and field.message_type is not None:
            getattr(message, field.name).CopyFrom(filled(field.message_type, values))
    return message
