"""Decides whether a request asks for this daemon, by the host that it names. Pure.

A page in a browser reaches the loopback address of its machine if the name of the page's server leads there (DNS
rebinding). The browser then names that server in `Host`. Prometheus, probes and tunnels name an address or localhost.
"""

from __future__ import annotations

import ipaddress

from shardmerge.proto.config.address import is_loopback


def checked_host(address: str, *, has_tls: bool) -> str | None:
    """The configured host of the endpoint at host:port, if only requests for it are answered; None: all are. With TLS
    a caller shows a certificate, which a page cannot make a browser do. Other machines may know the daemon by any
    name."""
    if has_tls or not is_loopback(address):
        return None
    return _name(address)


def is_asked_for(host: str, configured: str) -> bool:
    """``host``: of the request, with or without a port; "": it names none, which no browser does."""
    name = _name(host)
    if name in ("", configured, "localhost") or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return is_loopback(f"{name}:0")
    return True


def _name(host: str) -> str:
    """Without the port, brackets and the dot at the end."""
    name, bracket, _ = host.strip().lower().partition("]")
    if bracket:
        return name.removeprefix("[")
    return name.partition(":")[0].rstrip(".") if name.count(":") < 2 else name
