"""dm-master: the command."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from master.server import Master
from master.settings import Settings
from proto.config.daemon import load_master, shown
from proto.errors import ShardmergeError
from proto.log import configure, get_logger


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="Configuration file (YAML).")
@click.option("--name", help="Unique name of this master; default: host and port.")
@click.option("--master-addr", help="Address to listen on, host:port.  [default: 127.0.0.1:8261]")
@click.option("--advertise-addr", help="Address that others dial; default: the listening address.")
@click.option("--etcd", help="etcd endpoints, comma-separated.  [default: 127.0.0.1:2379]")
@click.option("--lock-alert-seconds", help="Age of a sharding DDL's lock that is told in the log.  [default: 300]")
@click.option("-L", "--log-level", help="debug, info, warn or error.  [default: info]")
@click.option("--log-format", help="text or json.  [default: text]")
def main(
    config: Path | None,
    name: str | None,
    master_addr: str | None,
    advertise_addr: str | None,
    etcd: str | None,
    lock_alert_seconds: str | None,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Decides which worker does what. Every flag is also a key of the configuration file; the flag wins."""
    flags = {
        "name": name,
        "master-addr": master_addr,
        "advertise-addr": advertise_addr,
        "etcd": etcd,
        "lock-alert-seconds": lock_alert_seconds,
        "log-level": log_level,
        "log-format": log_format,
    }
    try:
        file = load_master(config, {key: value for key, value in flags.items() if value is not None})
        configure("dm-master", file.log_level, file.log_format)
        _run(
            Settings(
                name=file.name,
                listen=file.master_addr,
                advertise=file.advertise_addr,
                etcd=file.etcd,
                member_ttl=file.worker_ttl,
                rpc_timeout=file.rpc_timeout,
                lock_alert=file.lock_alert_seconds,
                shown=shown(file),
            )
        )
    except ShardmergeError as error:
        click.echo(f"dm-master: {error}\n{error.workaround}", err=True)
        sys.exit(1)


def _run(settings: Settings) -> None:
    """Until SIGTERM or SIGINT, which drain; a second one ends the process at once."""
    ending = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if ending.is_set():
            os._exit(128 + number)
        ending.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    master = Master(settings).start()
    ending.wait()
    get_logger().info("ending", master=settings.name)
    master.stop()


if __name__ == "__main__":
    main()
