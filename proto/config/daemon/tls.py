"""The TLS keys of the daemons' own files: their joint result, and which ones are missing. Pure."""

from __future__ import annotations

from shardmerge.proto.config.address import is_loopback, is_open_collector, is_plain_etcd
from shardmerge.proto.config.daemon.model import DaemonFile, MasterFile
from shardmerge.proto.config.document.yaml_file import Document
from shardmerge.proto.config.finding import ConfigFinding
from shardmerge.proto.errors import config
from shardmerge.proto.tls.model import Tls, TlsFiles, incomplete


def tls_of(file: DaemonFile) -> Tls | None:
    """TLS between the processes; None: plain text."""
    if not file.ssl_ca:
        return None
    return Tls(TlsFiles(file.ssl_ca, file.ssl_cert, file.ssl_key), file.cert_allowed_cn)


def etcd_tls_of(file: DaemonFile) -> TlsFiles | None:
    """The files for etcd; None: plain text. An endpoint may override it for itself."""
    if all(map(is_plain_etcd, file.etcd)):
        return None
    if not file.etcd_ssl_ca and not file.etcd_ssl_cert:
        return TlsFiles(file.ssl_ca, file.ssl_cert, file.ssl_key) if file.ssl_ca else None
    ca = file.etcd_ssl_ca or file.ssl_ca
    if file.etcd_ssl_cert:
        return TlsFiles(ca, file.etcd_ssl_cert, file.etcd_ssl_key, "etcd-")
    return TlsFiles(ca, file.ssl_cert, file.ssl_key, "etcd-")


def tls_findings(document: Document, file: DaemonFile) -> list[ConfigFinding]:
    """Findings for keys without the keys that they need."""
    findings: list[ConfigFinding] = []
    problem = incomplete({"ssl-ca": file.ssl_ca, "ssl-cert": file.ssl_cert, "ssl-key": file.ssl_key})
    if problem is not None:
        findings.append(document.finding((problem[0],), problem[1], at_key=True))
    if file.cert_allowed_cn and not file.ssl_ca:
        message = "needs ssl-ca, ssl-cert and ssl-key: without TLS no caller shows a name"
        findings.append(document.finding(("cert-allowed-cn",), message, at_key=True))
    if bool(file.etcd_ssl_cert) != bool(file.etcd_ssl_key):
        missing, given = "etcd-ssl-key", "etcd-ssl-cert"
        if file.etcd_ssl_key:
            missing, given = given, missing
        findings.append(document.finding((given,), f"{given} without {missing}", at_key=True))
    trusted = file.etcd_ssl_ca or file.ssl_ca
    if file.etcd_ssl_cert and not trusted:
        findings.append(
            document.finding(("etcd-ssl-cert",), "needs etcd-ssl-ca or ssl-ca: the trusted authority", at_key=True)
        )
    if not trusted and any(endpoint.startswith("https://") for endpoint in file.etcd):
        findings.append(document.finding(("etcd",), "https:// needs etcd-ssl-ca or ssl-ca: the trusted authority"))
    return findings


def open_findings(document: Document, file: DaemonFile) -> list[ConfigFinding]:
    """Findings for addresses that other machines reach without TLS, and for traces that are sent to one, unless
    ``insecure`` allows that."""
    if file.insecure:
        return []
    findings: list[ConfigFinding] = []
    if is_open_collector(file.trace_endpoint):
        shown = f"other machines can read what is sent to {file.trace_endpoint}: names of tasks, sources and commands"
        findings.append(document.finding(("trace-endpoint",), shown, spec=config.OPEN_ADDRESS))
    if file.ssl_ca:
        return findings
    listening = "master-addr" if isinstance(file, MasterFile) else "worker-addr"
    given = {listening: file.listening, "advertise-addr": file.advertise_addr}
    message = (
        "other machines reach {address}, and without TLS any program there may control this process and read its data"
    )
    findings += [
        document.finding((key,), message.format(address=address), spec=config.OPEN_ADDRESS)
        for key, address in given.items()
        if address and not is_loopback(address)
    ]
    if file.http_address and not is_loopback(file.http_address):
        shown = f"other machines reach {file.http_address}, and without TLS any program there may read names and states"
        findings.append(document.finding(("http-addr",), shown, spec=config.OPEN_ADDRESS))
    return findings
