"""Options, environment, file: which wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.ctl.options import with_two_dashes
from shardmerge.ctl.settings import CliValues, OutputFormat, parse_addresses, parse_duration, resolve, split_sources
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.tls.model import TlsFiles


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("1h30m", 5400), ("500ms", 0.5), ("1.5s", 1.5), (".5s", 0.5), ("2h45m30.5s", 9930.5), ("3µs", 3e-6)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "10 m", "-1s", "10mm", "1d", "0s", "s10", "1h30"])
def test_refused_durations(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@given(st.integers(1, 99), st.integers(0, 59), st.integers(0, 59))
def test_durations_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        (":8261", ("127.0.0.1:8261",)),
        ("dm", ("dm:8261",)),
        ("a:1, b:2,,a:1", ("a:1", "b:2")),
        ("[::1]:9", ("[::1]:9",)),
        ("[::1]", ("[::1]:8261",)),
    ],
)
def test_addresses(text: str, addresses: tuple[str, ...]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", [",", "http://a:1", "a:b", "a:0", "a:65536", "::1", "[::1", "a b:1", "a:", "[::1]9"])
def test_refused_addresses(text: str) -> None:
    with pytest.raises(ValueError):
        parse_addresses(text)


def test_sources() -> None:
    assert split_sources(["a,b", "c", "b, d,"]) == ("a", "b", "c", "d")


def test_option_before_environment_before_file_before_default(tmp_path: Path) -> None:
    file = tmp_path / "dmctl.toml"
    file.write_text('master-addr = "file:1"\nrpc-timeout = "1m"\n')
    environment = {"DM_MASTER_ADDR": "env:1"}
    assert resolve(CliValues(), {}).addresses == ("127.0.0.1:8261",)
    assert resolve(CliValues(), {}).timeout == 600
    assert resolve(CliValues(), {}).output is OutputFormat.AUTO
    assert resolve(CliValues(config=str(file)), {}).addresses == ("file:1",)
    assert resolve(CliValues(config=str(file)), {}).timeout == 60
    assert resolve(CliValues(config=str(file)), environment).addresses == ("env:1",)
    settings = resolve(CliValues(config=str(file), master_addr="opt:1", rpc_timeout="2s", output="json"), environment)
    assert (settings.addresses, settings.timeout, settings.output) == (("opt:1",), 2, OutputFormat.JSON)


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ('master-adr = "x"', errors.ctl.BAD_CONFIG.code, "do you mean master-addr?"),
        (
            'zzz = "x"',
            errors.ctl.BAD_CONFIG.code,
            "known are master-addr, rpc-timeout, secret-key-path, ssl-ca, ssl-cert",
        ),
        ("rpc-timeout = 5", errors.ctl.BAD_CONFIG.code, "must be a string"),
        ('rpc-timeout = "5"', errors.ctl.BAD_CONFIG.code, "not a duration"),
        ("rpc-timeout =\n", errors.ctl.BAD_CONFIG.code, "line 1"),
    ],
)
def test_refused_files(tmp_path: Path, text: str, code: int, says: str) -> None:
    file = tmp_path / "dmctl.toml"
    file.write_text(text)
    with pytest.raises(ShardmergeError) as caught:
        resolve(CliValues(config=str(file)), {})
    assert caught.value.code == code
    assert says in caught.value.message
    assert str(file) in caught.value.message


def test_tls_by_file_and_options(tmp_path: Path) -> None:
    file = tmp_path / "dmctl.toml"
    file.write_text('ssl-ca = "ca.pem"\nssl-cert = "c.pem"\nssl-key = "k.pem"\n')
    assert resolve(CliValues(), {}).tls is None
    assert resolve(CliValues(config=str(file)), {}).tls == TlsFiles("ca.pem", "c.pem", "k.pem")
    mixed = resolve(CliValues(config=str(file), ssl_cert="mine.pem", ssl_key="mine.key"), {})
    assert mixed.tls == TlsFiles("ca.pem", "mine.pem", "mine.key")
    file.write_text('ssl-ca = "ca.pem"\n')
    with pytest.raises(ValueError, match="ssl-cert and ssl-key are missing"):
        resolve(CliValues(config=str(file)), {})
    assert resolve(CliValues(config=str(file), ssl_cert="c", ssl_key="k"), {}).tls == TlsFiles("ca.pem", "c", "k")


def test_one_dash_spellings() -> None:
    turned = with_two_dashes(["-master-addr=a:1", "-s", "x", "-config", "f", "-V", "-source", "--", "-version"])
    assert turned == ["--master-addr=a:1", "-s", "x", "--config", "f", "-V", "-source", "--", "-version"]
