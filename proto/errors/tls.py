"""Errors of TLS between the processes, and to etcd: codes 61000–61999.

Most are retryable although nothing improves by itself: certificates are files that are replaced while the processes
run, and are read again for every connection.
"""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="tls")

FILE_UNUSABLE = _define(
    61002,
    "tls-file-of-process-unusable",
    scope=Scope.CONFIG,
    message="{key}: {path} cannot be used: {reason}",
    workaround="Put a PEM file there that this process's user can read, or correct the path under {key}. A process "
    "that runs keeps what it read before until the files are right.",
    retryable=True,
)
KEY_DIFFERS = _define(
    61012,
    "tls-key-of-another-certificate",
    scope=Scope.CONFIG,
    message="the key in {key} does not belong to the certificate in {certificate}",
    workaround="Give the key that the certificate was made for: `openssl pkey -in {key} -pubout` and `openssl x509 -in "
    "{certificate} -noout -pubkey` must print the same. A process that runs keeps the pair that it read before.",
    retryable=True,
)
NOT_VALID_NOW = _define(
    61022,
    "tls-certificate-not-valid-now",
    scope=Scope.CONFIG,
    message="the certificate in {path} is valid from {begin} to {end}, not now",
    workaround="Put a new certificate and its key in the place of the old ones (docs/how-to/tls.md); a process that "
    "runs takes them by itself. If the dates are right, set this machine's clock.",
    retryable=True,
)
PEER_NOT_TRUSTED = _define(
    61032,
    "tls-peer-not-trusted",
    scope=Scope.CONFIG,
    message="the certificate that {address} shows is not accepted: {reason}",
    workaround="Its issuer must be in this process's {ca}, and it must be valid now: give that "
    "process a certificate of the cluster's authority (docs/how-to/tls.md), or add the authority to the file. Nothing "
    "was sent.",
    retryable=True,
)
PEER_NAME = _define(
    61042,
    "tls-peer-of-another-name",
    scope=Scope.CONFIG,
    message="the certificate that {address} shows is not for {host}, but for {names}",
    workaround="Make that process's certificate for the host that others dial (subjectAltName: DNS:… or IP:…), or let "
    "its advertise-addr, or the address that you gave, be one of those names. Nothing was sent.",
    retryable=True,
)
OWN_REFUSED = _define(
    61052,
    "tls-own-certificate-refused",
    scope=Scope.CONFIG,
    message="{address} refuses the certificate of this process ({certificate}): {reason}",
    workaround="Its issuer must be in that process's ssl-ca, it must be valid now, and if it lists its purposes, "
    "clientAuth must be among them (docs/how-to/tls.md). To etcd: give etcd-ssl-cert and etcd-ssl-key, or ssl-cert "
    "and ssl-key.",
    retryable=True,
)
PEER_PLAIN = _define(
    61062,
    "tls-not-spoken-by-peer",
    scope=Scope.CONFIG,
    message="{address} does not use TLS, and this process must: nothing was sent in clear text",
    workaround="Give that process ssl-ca, ssl-cert and ssl-key too, or remove them from this one. An etcd without TLS "
    "is used when its endpoint is written as http://host:port.",
    retryable=True,
)
PEER_WANTS_TLS = _define(
    61072,
    "tls-wanted-by-peer",
    scope=Scope.CONFIG,
    message="{address} accepts TLS only, and this process has no certificates",
    workaround="Set ssl-ca, ssl-cert and ssl-key: as keys of its file or as flags; dmctl takes --ssl-ca, "
    "--ssl-cert and --ssl-key. For etcd alone: etcd-ssl-ca, etcd-ssl-cert and etcd-ssl-key.",
    retryable=True,
)
NAME_REFUSED = _define(
    61082,
    "tls-name-not-allowed",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="{program} takes no calls from the certificate of {name}: it is not in its cert-allowed-cn",
    workaround="Add the certificate's common name to cert-allowed-cn of that process and restart it, or call with a "
    "certificate whose common name is there.",
)
OWN_NAME = _define(
    61092,
    "tls-own-name-not-allowed",
    scope=Scope.CONFIG,
    message="cert-allowed-cn does not hold {name}, the common name of this process's own certificate in {certificate}",
    workaround="Add it: lanes and chunk readers call their worker with its own certificate, and masters need "
    "it among the names of every worker.",
)
KEY_READABLE = _define(
    61102,
    "tls-key-readable-by-others",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="the key in {path} can be read by every user of this machine (mode {mode})",
    workaround="chmod 600 {path}, and make a new key if others have been on this machine.",
)
OPEN_SPARK = _define(
    61112,
    "tls-not-between-spark-processes",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="Spark's own connections between this worker and its executors ({master}) are not encrypted. They carry "
    "the secrets of runs: a program that reads one can fetch passwords of sources and targets from this worker",
    workaround="Remove spark.network.crypto.enabled: false from `spark`, or run Spark inside the worker: "
    "master: local[N].",
)
INSECURE = _define(
    61143,
    "tls-left-out",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="insecure: true: what is sent to and from {address} is in plain text; a program on the network can read "
    "passwords and rows, and change what it forwards",
    workaround="Set ssl-ca, ssl-cert and ssl-key (`dmctl tls init` makes the files; docs/how-to/tls.md) and remove "
    "insecure.",
)
OPEN_ETCD = _define(
    61182,
    "etcd-open",
    scope=Scope.CONFIG,
    level=Level.HIGH,
    message="etcd at {endpoint} answers callers without an identity: any program that reaches it can read and replace "
    "the instructions for all masters and workers, and copy the encrypted passwords",
    workaround="On one machine let etcd listen on Unix sockets in a folder FOLDER of mode 0700, with its present data "
    "DATA (an absolute path; without it etcd begins empty): cd FOLDER && etcd --data-dir DATA --listen-client-urls "
    "unix://etcd:0 --advertise-client-urls unix://etcd:0 --listen-peer-urls unix://peer:0 "
    "--initial-advertise-peer-urls unix://peer:0 --initial-cluster default=unix://peer:0 (remove sockets that a killed "
    "etcd has left), and etcd: [unix:FOLDER/etcd:0] here. Else start etcd with --client-cert-auth and "
    "--trusted-ca-file (`dmctl tls init` makes the files; docs/how-to/tls.md). To use it as it is: insecure: true.",
)
CALLER_UNKNOWN = _define(
    61152,
    "caller-unknown",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="{program} takes calls in plain text only from programs that prove that they hold the cluster's key; the "
    "caller does not: {reason}",
    workaround="dmctl of the user that runs dm-master finds the key by itself. Elsewhere let secret-key-path in the "
    "program's file (dmctl: in the file of --config, or SHARDMERGE_SECRET_KEY) name a copy of the cluster's key, use a "
    "certificate (`dmctl tls init`), or, as the same user, dm-master's Unix socket: dmctl --master-addr unix:PATH.",
)
CALLER_PROOF_STALE = _define(
    61162,
    "caller-proof-stale",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{program} has started anew since the caller asked for its challenge",
    workaround="Call again. A program of this version asks for the new challenge by itself.",
    retryable=True,
)
SERVER_UNPROVEN = _define(
    61172,
    "server-unproven",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="{peer} does not prove that it belongs to this cluster: {reason}; nothing was sent to it",
    workaround="Let secret-key-path of that process name a copy of the cluster's key, or put the copy where it looks "
    "for it (docs/how-to/secrets.md), and let it be of this version. If the process that listens there is not "
    "one of the cluster, end it, or correct the address.",
    retryable=True,
)
