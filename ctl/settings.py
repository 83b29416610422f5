"""dmctl's settings: options, environment and --config file in one frozen value."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardmerge.ctl.files import read_text
from shardmerge.proto import errors
from shardmerge.proto.tls.model import TlsFiles, incomplete

DEFAULT_ADDRESS = "127.0.0.1:8261"
DEFAULT_PORT = 8261
ENVIRONMENT = "DM_MASTER_ADDR"
SECRET_KEY = "SHARDMERGE_SECRET_KEY"  # noqa: S105 - a variable's name; it holds a path

_SOCKET = "unix:"  # shardmerge.proto.files.local_socket imports gRPC's errors, which are not needed here
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_KEYS = ("master-addr", "rpc-timeout", "secret-key-path", "ssl-ca", "ssl-cert", "ssl-key")


class OutputFormat(enum.Enum):
    """AUTO is a table on a terminal and JSON in a pipe."""

    AUTO = "auto"
    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class CliValues:
    """The values on the command line; None: not there. :func:`resolve` fills the missing ones."""

    master_addr: str | None = None
    rpc_timeout: str | None = None
    config: str | None = None
    output: str | None = None
    debug: bool = False
    sources: tuple[str, ...] = ()
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """``addresses``: masters to try in turn, each ``host:port`` or ``unix:PATH``; ``timeout``: seconds for one call;
    ``secret_key_path``: the key file of encrypted passwords, "" for none; ``tls``: None for plain text."""

    addresses: tuple[str, ...]
    timeout: float
    output: OutputFormat
    debug: bool
    sources: tuple[str, ...]
    secret_key_path: str = ""
    tls: TlsFiles | None = None


def resolve(cli: CliValues, environment: Mapping[str, str]) -> ClientSettings:
    """The settings: an option wins over the environment, that over the --config file, that over the default.

    Raises errors.ctl.BAD_CONFIG, FILE_NOT_FOUND, FILE_UNREADABLE for the file and ValueError (with a
    sentence for the user) for a malformed address or duration, and for some of the TLS files without the others.
    """
    file = read_config(cli.config) if cli.config is not None else {}
    addresses = cli.master_addr or environment.get(ENVIRONMENT) or file.get("master-addr") or DEFAULT_ADDRESS
    return ClientSettings(
        addresses=parse_addresses(addresses),
        timeout=parse_duration(cli.rpc_timeout or file.get("rpc-timeout") or "10m"),
        output=OutputFormat(cli.output or "auto"),
        debug=cli.debug,
        sources=split_sources(cli.sources),
        secret_key_path=environment.get(SECRET_KEY) or file.get("secret-key-path") or "",
        tls=_tls(cli, file),
    )


def _tls(cli: CliValues, file: Mapping[str, str]) -> TlsFiles | None:
    """All three files, or none of them: TLS that was requested incompletely is never silently left out. Raises
    ValueError."""
    options = {"ssl-ca": cli.ssl_ca, "ssl-cert": cli.ssl_cert, "ssl-key": cli.ssl_key}
    files = {key: value or file.get(key) or "" for key, value in options.items()}
    problem = incomplete(files)
    if problem is not None:
        raise ValueError(problem[1])
    return TlsFiles(files["ssl-ca"], files["ssl-cert"], files["ssl-key"]) if files["ssl-ca"] else None


def parse_duration(text: str) -> float:
    """Seconds of a Go duration (https://pkg.go.dev/time#ParseDuration): ``"10m"``, ``"1h30m"``, ``"500ms"``.

    Raises ValueError; a duration without a unit or not above zero is refused.
    """
    parts = list(_DURATION_PART.finditer(text))
    if not parts or "".join(part.group() for part in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 30s, 10m or 1h30m")
    seconds = sum(float(part.group(1)) * _UNIT_SECONDS[part.group(2)] for part in parts)
    if seconds <= 0:
        raise ValueError(f"a duration must be above zero, not {text!r}")
    return seconds


def parse_addresses(text: str) -> tuple[str, ...]:
    """``"host:port"`` of every master of a comma list; host defaults to 127.0.0.1, port to 8261. ``unix:PATH`` is a
    Unix socket, with its whole path.

    Raises ValueError.
    """
    found: list[str] = []
    for part in text.split(","):
        address = part.strip()
        if not address:
            continue
        if address.startswith(_SOCKET):
            found.append(_socket(address))
            continue
        host, port = _split_address(address)
        found.append(f"{host or '127.0.0.1'}:{port}")
    if not found:
        raise ValueError(f"{text!r} names no master address")
    return tuple(dict.fromkeys(found))


def _socket(address: str) -> str:
    """The address of a socket, which may also be written as ``unix:///path``, as in gRPC."""
    path = address.removeprefix(_SOCKET)
    path = path[2:] if path.startswith("///") else path
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError(f"{address!r}: a Unix socket is written unix:/path/to/it.sock")
    return _SOCKET + path


def _split_address(address: str) -> tuple[str, int]:
    wrong = ValueError(f"{address!r} is not an address of the form host:port")
    if "/" in address or any(mark.isspace() for mark in address):
        raise wrong
    if address.startswith("["):  # IPv6 in brackets
        host, bracket, rest = address.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise wrong
        host, port = host + bracket, rest[1:]
    elif address.count(":") > 1:
        raise ValueError(f"{address!r}: write an IPv6 address in brackets, [::1]:{DEFAULT_PORT}")
    else:
        host, _, port = address.partition(":")
        if ":" in address and not port:
            raise wrong
    if not port:
        return host, DEFAULT_PORT
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r}: the port must be a number from 1 to 65535")
    return host, int(port)


def split_sources(values: Iterable[str]) -> tuple[str, ...]:
    """Source ids of repeated options and comma lists, each once, in order."""
    parts = (part.strip() for value in values for part in value.split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def read_config(path: str) -> dict[str, str]:
    """dmctl's own TOML file (DM's ``dmctl.toml``): master-addr, rpc-timeout, secret-key-path, ssl-*, all strings."""
    import tomllib

    text = read_text(path)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise errors.ctl.BAD_CONFIG(path=path, problem=error) from error
    for key, value in content.items():
        if key not in _KEYS:
            import difflib

            near = difflib.get_close_matches(key, _KEYS, 1)
            hint = f", do you mean {near[0]}?" if near else f"; known are {', '.join(_KEYS)}"
            raise errors.ctl.BAD_CONFIG(path=path, problem=f"unknown key {key}{hint}")
        if not isinstance(value, str):
            raise errors.ctl.BAD_CONFIG(path=path, problem=f'{key} must be a string, e.g. {key} = "…"')
        try:
            if key == "master-addr" and value:
                parse_addresses(value)
            if key == "rpc-timeout" and value:
                parse_duration(value)
        except ValueError as error:
            raise errors.ctl.BAD_CONFIG(path=path, problem=f"{key}: {error}") from error
    return {key: str(value) for key, value in content.items()}
