"""The keys of the daemons' own files: dm-master and dm-worker.

Every key is also a command-line flag of the same name; a flag wins over the file. The keys are DM's where there is one
(tiflow, dm/master/config.go and dm/worker/config.go). Reading such a file:
:mod:`shardmerge.proto.config.daemon.daemon_file`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from shardmerge.proto.config import defaults
from shardmerge.proto.config.address import (
    HTTP_AUTO,
    AdvertisedAddress,
    CollectorUrl,
    EtcdAddress,
    HttpAddress,
    ListenAddress,
    is_loopback,
)
from shardmerge.proto.config.document.file_model import LOWERED, FileModel, UInt32
from shardmerge.proto.config.durations_and_sizes import Seconds, Size
from shardmerge.proto.config.key import Key
from shardmerge.proto.config.rules.transforms.python_function import module_name
from shardmerge.proto.config.source import file_safe
from shardmerge.proto.networks import network_entry

ProcessName = Annotated[str, Field(max_length=64), AfterValidator(file_safe)]

AllowedEntry = Annotated[str, AfterValidator(network_entry)]
ModuleName = Annotated[str, AfterValidator(module_name)]
VariablePrefix = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

_HTTP_STEP = 1000
_FILES_ONLY = "certificates of the processes are read from files: ssl-ca, ssl-cert, ssl-key"
_ETCD = "no effect: etcd is a separate server here; set etcd to its endpoints"


class ExperimentalFeatures(FileModel):
    """DM's experiments of dm-master."""

    openapi: Annotated[bool, Key("Old place of openapi.", effect="no effect: programs use the gRPC interface")] = False


class DaemonFile(FileModel):
    """The keys of both daemons."""

    name: Annotated[
        ProcessName, Key("Unique name among the daemons of its kind.", default="<host>-<port>", sample="{name}")
    ] = ""
    advertise_addr: Annotated[
        AdvertisedAddress,
        Key(
            "Address that other processes connect to.",
            default="the listening address, with this host's name when that is every interface",
            sample="{address}",
        ),
    ] = ""
    etcd: Annotated[
        tuple[EtcdAddress, ...],
        Field(min_length=1),
        Key(
            "Endpoints of etcd, tried in turn: host:port, https://host:port, http://host:port or unix:/path; as a flag "
            "separated by commas.",
            sample="[127.0.0.1:2379]",
        ),
    ] = defaults.ETCD
    secret_key_path: Annotated[
        str,
        Key(
            "File with the key that encrypts stored passwords. All masters and workers need the same key. The first "
            "master creates the default file; a file that is named here is not created.",
            default="$XDG_STATE_HOME/shardmerge/secret.key, else ~/.local/state/shardmerge/secret.key",
        ),
    ] = ""
    allowed_networks: Annotated[
        tuple[AllowedEntry, ...],
        Key(
            "Our own: networks (10.0.0.0/8), addresses and host names of the sources and targets that connections are "
            "allowed to. dm-worker and its Spark tasks check the address before each connection; dm-master refuses "
            "files with another address. A host name allows a host that a file names so, with any address. As "
            "a flag: separated by commas.",
            default="none: every address",
        ),
    ] = ()
    log_level: Annotated[
        Literal["debug", "info", "warn", "error", "fatal"],
        LOWERED,
        Key("Lowest level that is logged.", sample="info"),
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"], LOWERED, Key("One line per event, as text or JSON.", sample="text")
    ] = "text"
    log_file: Annotated[
        str,
        Key("File that the log is appended to; it is opened again when it was moved away.", default="standard error"),
    ] = ""
    log_rotate: Annotated[
        str, Key("Deprecated in DM.", effect="no effect: let logrotate move the file; the daemon opens a new one")
    ] = ""
    ssl_ca: Annotated[
        str,
        Key(
            "PEM file: the trusted authorities. With ssl-cert and ssl-key every connection between the processes, and "
            "to etcd, uses TLS, and both sides show a certificate.",
            default="none: plain text",
        ),
    ] = ""
    ssl_cert: Annotated[str, Key("PEM file: this process's certificate, as server and as client.", default="none")] = ""
    ssl_key: Annotated[str, Key("PEM file: its key. Replaced files are read without a restart.")] = Field(
        default="", repr=False
    )
    cert_allowed_cn: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Key(
            "Common names of the certificates whose calls are accepted, this process's own included; as a flag "
            "separated by commas.",
            default="every certificate of ssl-ca",
        ),
    ] = ()
    insecure: Annotated[
        bool,
        Key(
            "Our own: allow an address that other machines reach without TLS, and an etcd that answers callers without "
            "an identity, and give the metrics to every caller. Any program that reaches them may control the cluster "
            "and read its data.",
        ),
    ] = False
    etcd_ssl_ca: Annotated[
        str,
        Key(
            "Our own: PEM file of the authorities trusted for etcd. Endpoints of etcd use TLS if this or ssl-ca is "
            "set; http:// before an endpoint turns TLS off, https:// on.",
            default="ssl-ca",
        ),
    ] = ""
    etcd_ssl_cert: Annotated[str, Key("Our own: PEM file of the certificate for etcd.", default="ssl-cert")] = ""
    etcd_ssl_key: Annotated[str, Key("Our own: its key.", default="ssl-key")] = Field(default="", repr=False)
    ssl_ca_base64: Annotated[str, Key("The certificate itself.", refused=_FILES_ONLY)] = Field(default="", repr=False)
    ssl_cert_base64: Annotated[str, Key("The certificate itself.", refused=_FILES_ONLY)] = Field(default="", repr=False)
    ssl_key_base64: Annotated[str, Key("The key itself.", refused=_FILES_ONLY)] = Field(default="", repr=False)

    http_addr: Annotated[
        HttpAddress,
        Key(
            "Our own: address of the HTTP endpoint with /metrics, /livez, /readyz, /leader and /version "
            "(docs/how-to/monitor.md); :PORT listens on every interface, off or an empty value turns it off. With "
            "ssl-ca it uses TLS, and callers show a certificate. Without ssl-ca callers of /metrics send a token, and "
            "an address that other machines reach needs insecure. If the address of auto is in use, the daemon starts "
            "without the endpoint.",
            default="auto: 127.0.0.1 and the port of the listening address plus 1000",
            sample="auto",
        ),
    ] = HTTP_AUTO
    metrics_per_table: Annotated[
        Literal["auto", "on", "off"],
        LOWERED,
        Key(
            "Our own: which target tables have metrics of their own: the first 100 of a subtask (auto), the first "
            "10,000 (on) or none (off). The tables of all subtasks of a worker, times their lanes, are at most 2,000 "
            "(auto) or 20,000 (on). All others are one series for each subtask, `_other`.",
            sample="auto",
        ),
    ] = "auto"
    trace_endpoint: Annotated[
        CollectorUrl,
        Key(
            "Our own: URL of an OpenTelemetry collector that receives the traces of commands by OTLP over HTTP "
            "(docs/how-to/logs-and-traces.md); without it there are none. A collector on another machine needs "
            "https:// or insecure.",
        ),
    ] = ""
    grpc_reflection: Annotated[
        bool,
        Key(
            "Our own: enable gRPC reflection, for tools such as grpcurl. The files proto/*.proto describe the same "
            "services."
        ),
    ] = False

    @property
    def listening(self) -> str:
        """The address to listen on."""
        raise NotImplementedError

    @property
    def http_address(self) -> str:
        """The address of the HTTP endpoint; "": it is off."""
        if self.http_addr != HTTP_AUTO:
            return self.http_addr
        port = int(self.listening.rpartition(":")[2])
        return f"127.0.0.1:{port + _HTTP_STEP if port + _HTTP_STEP < 65536 else port - _HTTP_STEP}"

    @property
    def http_is_default(self) -> bool:
        """Whether the daemon chooses the address of the HTTP endpoint, and starts without it if that is in use."""
        return self.http_addr == HTTP_AUTO

    @property
    def is_open(self) -> bool:
        """Whether other machines reach the process in plain text."""
        addresses = filter(None, (self.listening, self.advertise_addr))
        return not self.ssl_ca and not all(is_loopback(address) for address in addresses)


class MasterFile(DaemonFile):
    """dm-master's configuration."""

    master_addr: Annotated[
        ListenAddress, Key("Address to listen on; :8261 for every interface.", sample=defaults.MASTER_ADDR)
    ] = defaults.MASTER_ADDR
    env_prefixes: Annotated[
        tuple[VariablePrefix, ...],
        Key(
            "Our own: source and task files may name variables as `${NAME}` whose names begin with one of these "
            "prefixes; [] allows none. As a flag: separated by commas."
        ),
    ] = defaults.ENV_PREFIXES
    master_socket: Annotated[
        str,
        Key(
            "Our own: path of an additional Unix socket for this user only. Callers of it may receive passwords "
            "(`dmctl --master-addr unix:PATH config export`). Only this user may have access to its folder.",
            default="$XDG_RUNTIME_DIR/shardmerge/<name>.sock, none without that variable",
        ),
    ] = ""
    worker_ttl: Annotated[
        Seconds, Key("Our own: seconds without etcd after which another master leads.", sample="5")
    ] = defaults.WORKER_TTL_SECONDS
    rpc_timeout: Annotated[
        Seconds,
        Key("Seconds that a command waits until workers have acted on a decision. DM: 30s.", sample="60"),
    ] = defaults.RPC_TIMEOUT_SECONDS
    lock_alert_seconds: Annotated[
        Seconds,
        Key(
            "Our own: a sharding DDL that waits longer than this is logged repeatedly, in this interval.", sample="300"
        ),
    ] = defaults.LOCK_ALERT_SECONDS
    history_days: Annotated[
        int,
        Field(ge=1, le=366),
        Key("Our own: days that the history of tasks is kept in etcd (docs/how-to/history.md).", sample="30"),
    ] = defaults.HISTORY_DAYS
    history_sample_seconds: Annotated[
        Seconds,
        Field(le=86_400),
        Key(
            "Our own: seconds between two samples of a task's lag and rate for its history; each costs one write to "
            "etcd.",
            sample="600",
        ),
    ] = defaults.HISTORY_SAMPLE_SECONDS
    rpc_rate_limit: Annotated[float, Key("Calls per second.", effect="no effect: the limits of calls are fixed")] = 10
    rpc_rate_burst: Annotated[UInt32, Key("Calls at once.", effect="no effect: the limits of calls are fixed")] = 40
    openapi: Annotated[
        bool, Key("DM's HTTP interface.", effect="no effect: programs use the gRPC interface (proto/master.proto)")
    ] = False
    experimental: Annotated[ExperimentalFeatures, Key("DM's experiments.")] = ExperimentalFeatures()
    data_dir: Annotated[str, Key("Data of DM's built-in etcd.", effect=_ETCD)] = ""
    peer_urls: Annotated[str, Key("Of DM's built-in etcd.", effect=_ETCD)] = ""
    advertise_peer_urls: Annotated[str, Key("Of DM's built-in etcd.", effect=_ETCD)] = ""
    initial_cluster: Annotated[str, Key("Of DM's built-in etcd.", effect=_ETCD)] = ""
    initial_cluster_state: Annotated[Literal["", "new", "existing"], Key("Of DM's built-in etcd.", effect=_ETCD)] = ""
    join: Annotated[
        str,
        Key(
            "Masters whose cluster to join.",
            effect="no effect: masters that share an etcd are one cluster; set etcd to its endpoints",
        ),
    ] = ""
    max_txn_ops: Annotated[UInt32, Key("Of DM's built-in etcd.", effect=_ETCD)] = 2048
    max_request_bytes: Annotated[Size, Key("Of DM's built-in etcd.", effect=_ETCD)] = ""
    auto_compaction_mode: Annotated[
        Literal["", "periodic", "revision"], Key("Of DM's built-in etcd.", effect=_ETCD)
    ] = "periodic"
    auto_compaction_retention: Annotated[str, Key("Of DM's built-in etcd.", effect=_ETCD)] = "1h"
    quota_backend_bytes: Annotated[Size, Key("Of DM's built-in etcd.", effect=_ETCD)] = ""
    v1_sources_path: Annotated[
        str,
        Key(
            "Sources of DM 1.0 to import.",
            refused="files of DM 1.0 are not imported: create the sources with operate-source, start the tasks again",
        ),
    ] = ""

    @property
    def listening(self) -> str:
        return self.master_addr


class WorkerFile(DaemonFile):
    """dm-worker's configuration."""

    worker_addr: Annotated[
        ListenAddress, Key("Address to listen on; :8262 for every interface.", sample=defaults.WORKER_ADDR)
    ] = defaults.WORKER_ADDR
    relay_dir: Annotated[
        str, Field(min_length=1), Key("Parent of one directory per source.", sample=defaults.RELAY_DIR)
    ] = defaults.RELAY_DIR
    keepalive_ttl: Annotated[
        Seconds,
        Key("Seconds without etcd after which the worker counts as lost and stops its lanes. DM: 60.", sample="10"),
    ] = defaults.KEEPALIVE_TTL_SECONDS
    drain_seconds: Annotated[
        Seconds,
        Key(
            "Our own: seconds that a stop may take to finish work in progress; 2 at most after the JVM was lost.",
            sample="10",
        ),
    ] = defaults.DRAIN_SECONDS
    max_inflated_event_mib: Annotated[
        int,
        Field(ge=1, le=4095),
        Key(
            "Our own: MiB that a compressed event of a binlog may have when it is decompressed: an event of MariaDB's "
            "log_bin_compress, or one in a transaction of MySQL's binlog_transaction_compression; such a transaction "
            "as a whole if it rolls back a part. A larger one stops the task. Each lane that reads the event needs "
            "that memory.",
            sample="256",
        ),
    ] = defaults.MAX_INFLATED_EVENT_MIB
    spark: Annotated[
        dict[str, str],
        Key(
            "Our own: Spark's settings by their full names, and `master`, Spark's master URL: `local[N]` bounds the "
            "lanes and chunk readers that run at once, `spark.cores.max` those on a standalone cluster, `spark://…` "
            "(docs/how-to/spark-cluster.md). A worker does not start with `spark.authenticate` or "
            "`spark.python.unix.domain.socket.enabled` false, with `spark.python.unix.domain.socket.dir`, with "
            "`spark.sql.variable.substitute`, `spark.ui.killEnabled`, `spark.ui.threadDumpsEnabled` or "
            "`spark.ui.heapHistogramEnabled` true, with `spark.driver.bindAddress` 0.0.0.0 without "
            "`spark.network.crypto.enabled`, with Spark Connect (`sc://…`, `spark.remote`), or with `spark://…` "
            "without `spark.authenticate.secret`; on a cluster also not with `spark.speculation` true, "
            "`spark.task.maxFailures` above 1, or `spark.dynamicAllocation.enabled` true without "
            "`spark.dynamicAllocation.minExecutors` above 0. Spark's web page is off without `spark.ui.enabled`.",
            default=f"{{master: {defaults.SPARK_MASTER}}}",
            sample=f"{{master: '{defaults.SPARK_MASTER}'}}",
        ),
    ] = Field(default_factory=dict[str, str])
    transform_modules: Annotated[
        tuple[ModuleName, ...],
        Key(
            "Our own: Python modules whose functions the `transforms` of a task file may name with `python`. Exactly "
            "these modules: a package does not include its modules. As a flag: separated by commas.",
            default="none: every such transform is refused",
        ),
    ] = ()
    relay_keepalive_ttl: Annotated[
        Seconds, Key("keepalive-ttl of a worker with a relay log.", effect="no effect: keepalive-ttl always holds")
    ] = 1800
    join: Annotated[
        str,
        Key("Masters to join.", effect="no effect: workers find the masters in etcd; set etcd to its endpoints"),
    ] = ""
    redact_info_log: Annotated[
        bool,
        Key(
            "Keep values of rows out of the log.",
            refused="errors contain the keys of the affected rows, in the log too",
        ),
    ] = False

    @property
    def listening(self) -> str:
        return self.worker_addr

    def spark_settings(self) -> dict[str, str]:
        """Every Spark setting of the file; ``spark.master`` is always set."""
        settings = {key: value for key, value in self.spark.items() if key != "master"}
        return {"spark.master": self.spark.get("master", defaults.SPARK_MASTER), **settings}
