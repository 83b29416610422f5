"""dm-master: the command."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import click

from shardmerge.master.server import Master
from shardmerge.master.settings import MasterSettings
from shardmerge.proto import errors, failpoints, networks, secret
from shardmerge.proto.config.daemon.daemon_file import load_daemon, shown
from shardmerge.proto.config.daemon.model import MasterFile
from shardmerge.proto.config.daemon.tls import etcd_tls_of, tls_of
from shardmerge.proto.config.daemon_flags import flag_names, flags_of, given_flags, with_two_dashes
from shardmerge.proto.config.secrets import variables
from shardmerge.proto.config.secrets.key_file import key_file
from shardmerge.proto.diagnostics import recent_lines
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd.access import AccessCheck
from shardmerge.proto.files.local_socket import default_path
from shardmerge.proto.log import configure, get_logger
from shardmerge.proto.networks import Networks
from shardmerge.proto.process.termination import call_on_termination
from shardmerge.proto.rpc import caller_proof
from shardmerge.proto.tls.process import use_in_daemon
from shardmerge.proto.tracing.otel import check_installed, otel_tracer
from shardmerge.proto.tracing.spans import end_tracing, use_tracer


@flags_of(MasterFile)
def command(path: Path | None, **flags: str | None) -> None:
    """The cluster's master: decides which worker does what. Every flag is also a key of the configuration file; the
    flag wins."""
    try:
        given = load_daemon(MasterFile, path, given_flags(flags))
        file = given.model
        configure("dm-master", file.log_level, file.log_format, file.log_file, recent_lines.OF_PROCESS)
        key = key_file(file.secret_key_path, os.environ)
        secret.use(key.path, may_be_missing=key.is_default)
        caller_proof.use(secret.call_keys)
        variables.use(file.env_prefixes)
        networks.use(Networks.of(file.allowed_networks))
        for note in given.notes:
            get_logger().warning("configuration", note=note)
        use_in_daemon(tls_of(file), etcd_tls_of(file))
        access = AccessCheck(file.etcd, etcd_tls_of(file), insecure=file.insecure)
        access.judge()
        if file.trace_endpoint:
            check_installed()
            use_tracer(otel_tracer(file.trace_endpoint, "dm-master", file.name))
        if file.is_open:
            warning = errors.tls.INSECURE(address=file.advertise_addr)
            get_logger().warning("configuration", error=str(warning), workaround=warning.workaround)
        _run(
            MasterSettings(
                name=file.name,
                listen=file.master_addr,
                advertise=file.advertise_addr,
                etcd=file.etcd,
                etcd_tls=etcd_tls_of(file),
                member_ttl=file.worker_ttl,
                rpc_timeout=file.rpc_timeout,
                lock_alert=file.lock_alert_seconds,
                shown=shown(file),
                socket=file.master_socket or default_path(os.environ, file.name),
                socket_is_default=not file.master_socket,
                key_file=key,
                reflection=file.grpc_reflection,
                http=file.http_address,
                http_is_default=file.http_is_default,
                insecure=file.insecure,
                history_days=file.history_days,
                history_sample_seconds=file.history_sample_seconds,
            ),
            access,
        )
    except ShardmergeError as error:
        click.echo(f"error: {error}\n       what to do: {error.workaround}", err=True)
        sys.exit(1)


def main() -> None:
    """The console script."""
    command(with_two_dashes(sys.argv[1:], flag_names(MasterFile)), prog_name="dm-master")


def _run(settings: MasterSettings, access: AccessCheck) -> None:
    """Run until SIGTERM or SIGINT, which drain; a second signal ends the process at once. Raises OPEN_ETCD."""
    ending = threading.Event()
    call_on_termination(ending.set)
    access.follow(ending)
    master = Master(settings).start()
    ending.wait()
    get_logger().info("ending", master=settings.name)
    failpoints.hit("master.ending")
    master.stop()
    end_tracing()
    access.check()


if __name__ == "__main__":
    main()
