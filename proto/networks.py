"""Restricts connections to the networks and host names that an operator allows for sources and targets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?")


@dataclass(frozen=True, slots=True)
class Networks:
    """``names``: hosts as files name them, in lower case; a host with such a name is allowed with any address."""

    networks: tuple[_Network, ...]
    names: frozenset[str]
    text: str
    """The configured text, for messages."""

    @staticmethod
    def of(entries: Sequence[str]) -> Networks | None:
        """Parse the entries of a daemon's file; None if there are none: everything is allowed. Raises ValueError."""
        if not entries:
            return None
        networks: list[_Network] = []
        names: set[str] = set()
        for entry in entries:
            network = _network(entry)
            if network is not None:
                networks.append(network)
            else:
                names.add(_plain(entry))
        return Networks(tuple(networks), frozenset(names), ", ".join(entries))

    def allow(self, host: str, address: str) -> bool:
        """Whether a connection to ``address``, one of those of ``host``, may be made."""
        return _plain(host) in self.names or self._holds(_address(address))

    def refuse_host(self, host: str) -> bool:
        """Whether ``host`` is an address that is not allowed. Never refuses a name: its addresses are checked."""
        address = _address(host)
        return address is not None and _plain(host) not in self.names and not self._holds(address)

    def _holds(self, address: _Address | None) -> bool:
        return address is not None and any(address in network for network in self.networks)


def network_entry(text: str) -> str:
    """``text``, if it is a network (``10.0.0.0/8``), an address or a host name. Raises ValueError."""
    _network(text)
    return text


def _network(entry: str) -> _Network | None:
    """None for a host name."""
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        if _NAME.fullmatch(entry) and not re.fullmatch(r"[0-9.]+", entry):
            return None
    raise ValueError("must be a network (10.0.0.0/8), an address or the name of a host")


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _address(text: str) -> _Address | None:
    """None for a name. An IPv4 address that is written as IPv6 is the IPv4 address: both are the same server."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


class _Process:
    allowed: Networks | None = None


def use(allowed: Networks | None) -> None:
    """Let this process connect to these servers only; None: to every server.

    The setting is global to the process, like its log: connections are made far from where the daemon's own file is
    read.
    """
    _Process.allowed = allowed


def of_process() -> Networks | None:
    """The networks set by :func:`use`."""
    return _Process.allowed
