"""Decides whether a request asks for this daemon, by the host that it names. Pure.

A page in a browser reaches the loopback address of its machine if the name of the page's server leads there (DNS
rebinding). The browser then names that server in `Host`. Prometheus, probes and tunnels name an address or localhost.
"""

from __future__ import annotations

import ipaddress
import re

from shardmerge.proto.config.address import is_loopback

_HOST = re.compile(
    # RFC 3986, 3.2.2, without percent-encoding, zones and addresses of the future.
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\]|(?P<name>[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?))(?::[0-9]{0,5})?"
)


def checked_host(address: str, *, has_tls: bool) -> str | None:
    """The configured host of the endpoint at host:port, if only requests for it are answered; None: all are. With TLS
    a caller shows a certificate, which a page cannot make a browser do. Other machines may know the daemon by any
    name."""
    if has_tls or not is_loopback(address):
        return None
    return _name(address)


def is_host(host: str) -> bool:
    """Whether it is exactly a host with or without a port (RFC 9110, 7.2), or "". Programs do not agree which host is
    in "127.0.0.1:80@other.example"."""
    return not host or _HOST.fullmatch(host) is not None


def is_asked_for(host: str, configured: str) -> bool:
    """``host``: of the request; "": it names none, which no browser does."""
    if not host:
        return True
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    if found["v6"] is not None:
        return _is_address(found["v6"])
    name = found["name"].lower().removesuffix(".")
    return (
        name in (configured, "localhost")
        or name.endswith(".localhost")
        or _is_address(name)
        or is_loopback(f"{name}:0")
    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _name(address: str) -> str:
    """Of an address host:port of the configuration: without the port, brackets and the dot at the end."""
    return address.lower().rpartition(":")[0].removeprefix("[").removesuffix("]").removesuffix(".")
