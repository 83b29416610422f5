"""Provides a network namespace as another machine, whose network can be cut off without any answer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

_NO_MACHINE = "02:00:00:00:00:01"


@dataclass(frozen=True, slots=True)
class OtherMachine:
    """A network namespace. ``here``: the address of this machine there; ``there``: its own address."""

    name: str
    here: str = "10.213.7.1"
    there: str = "10.213.7.2"

    @property
    def prefix(self) -> tuple[str, ...]:
        """Return the command that starts a process there."""
        return ("ip", "netns", "exec", self.name)

    def cut_off(self) -> None:
        """Lose all packets in both directions: each side sends them to a machine that does not exist."""
        for address, device, options in self._sides():
            _ip(*options, "neigh", "replace", address, "lladdr", _NO_MACHINE, "dev", device, "nud", "permanent")

    def connect(self) -> None:
        """End :meth:`cut_off`."""
        for address, device, options in self._sides():
            _ip(*options, "neigh", "del", address, "dev", device)

    def _sides(self) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        return ((self.there, f"{self.name}a", ()), (self.here, f"{self.name}b", ("-n", self.name)))

    def make(self) -> None:
        name = self.name
        _ip("netns", "add", name)
        _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        _ip("addr", "add", f"{self.here}/24", "dev", f"{name}a")
        _ip("link", "set", f"{name}a", "up")
        _ip("-n", name, "addr", "add", f"{self.there}/24", "dev", f"{name}b")
        _ip("-n", name, "link", "set", f"{name}b", "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        _ip("netns", "del", self.name)


@contextmanager
def another_machine() -> Generator[OtherMachine]:
    """Provide a namespace of this process for the block; it needs root and the command ip."""
    machine = OtherMachine(f"sm{os.getpid()}")
    try:
        machine.make()
        yield machine
    finally:
        machine.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
