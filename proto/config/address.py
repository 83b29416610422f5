"""Addresses of the daemons in configuration files: ``host:port``."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

from shardmerge.proto.files.local_socket import SCHEME

EVERY_INTERFACE = frozenset({"", "0.0.0.0", "[::]"})  # noqa: S104  (compared, not bound)
"""Hosts of an address that listens everywhere."""

_LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches ``host:port``. Of names only the machine's own count: a name server decides
    about others, and may change its answer. Pure."""
    host = address.rpartition(":")[0].strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOOPBACK_NAMES


def from_this_machine(listen: str) -> str:
    """The address at which this machine reaches what listens at ``host:port``. Pure."""
    host, _, port = listen.rpartition(":")
    if host not in EVERY_INTERFACE:
        return listen
    return f"[::1]:{port}" if host == "[::]" else f"127.0.0.1:{port}"


def _address(text: str) -> str:
    """``host:port``; ``:port`` listens on every interface; an IPv6 host is in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536):
        raise ValueError("must be host:port")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError("an IPv6 address needs brackets: [::1]:8261")
    return text


def _reachable(text: str) -> str:
    if text.rpartition(":")[0] in EVERY_INTERFACE:
        raise ValueError("must name a host that the other processes can reach")
    return text


def _of_etcd(text: str) -> str:
    if text.startswith(f"{SCHEME}/") and not text.startswith(f"{SCHEME}//"):
        return text
    scheme, mark, address = text.rpartition("://")
    if mark and scheme not in ("http", "https"):
        raise ValueError("must be host:port, https://host:port, http://host:port or unix:/path/of/the/socket")
    _reachable(_address(address))
    return text


def is_plain_etcd(endpoint: str) -> bool:
    """Whether an endpoint of etcd asks for plain text, also where there are certificates. Pure."""
    return endpoint.startswith(("http://", SCHEME))


HTTP_AUTO = "auto"
"""The daemon chooses the address of its HTTP endpoint."""


def _http(text: str) -> str:
    if text.lower() in ("", "off"):
        return ""
    return HTTP_AUTO if text.lower() == HTTP_AUTO else _address(text)


HttpAddress = Annotated[str, AfterValidator(_http)]
"""``host:port``, :data:`HTTP_AUTO`, or "" for none; "off" becomes ""."""


def _collector(text: str) -> str:
    """An URL of OTLP over HTTP. Credentials in it would appear wherever the settings are shown."""
    if not text:
        return ""
    found = _COLLECTOR.fullmatch(text)
    if found is None:
        raise ValueError("must be a URL without credentials, such as http://127.0.0.1:4318/v1/traces")
    _reachable(_address(found[2]))
    return text


_COLLECTOR = re.compile(r"(https?)://([^/@?#\s]+:\d+)(/[^@?#\s]*)?")

CollectorUrl = Annotated[str, AfterValidator(_collector)]
"""``http://host:port/path`` or ``https://host:port/path``, or ""."""


def is_open_collector(url: str) -> bool:
    """Whether other machines can read what is sent to this :data:`CollectorUrl`."""
    found = _COLLECTOR.fullmatch(url)
    return found is not None and found[1] == "http" and not is_loopback(found[2])


ListenAddress = Annotated[str, AfterValidator(_address)]
PeerAddress = Annotated[str, AfterValidator(_address), AfterValidator(_reachable)]
AdvertisedAddress = Annotated[str, AfterValidator(lambda text: text and _reachable(_address(text)))]
EtcdAddress = Annotated[str, AfterValidator(_of_etcd)]
"""``https://`` or ``http://`` before the address decides about TLS there; ``unix:/path`` is a Unix socket."""
