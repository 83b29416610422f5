"""TLS between the processes: both sides show a certificate, and each looks at the other's."""

from proto.tls.diagnose import diagnose, diagnosed, tell
from proto.tls.files import Certificates, TlsFiles, read_certificates
from proto.tls.process import Keeper, Tls, begin, keeper, key_warning, name_allowed, of_process, use, warn_of_key

__all__ = [
    "Certificates",
    "Keeper",
    "Tls",
    "TlsFiles",
    "begin",
    "diagnose",
    "diagnosed",
    "keeper",
    "key_warning",
    "name_allowed",
    "of_process",
    "read_certificates",
    "tell",
    "use",
    "warn_of_key",
]
