"""The changes between a stored source and a new file, key by key, and how each change takes effect. Pure.

A key that is a rule for the source's tables also needs a new ``update_token`` in each subtask of the source, which
:meth:`shardmerge.master.store.Store.update_source` takes along: then tables are planned again at a barrier, as with
update-task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from google.protobuf import json_format

from shardmerge.master.commands.task.update import flat
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.config.database import PasswordForm
from shardmerge.proto.config.secrets.sealed import as_comparable

_SWITCH = "continues at that address, if it is provably the same server or a replica that continues by GTID"
_LOGIN = "relay and tasks reconnect: a short pause without progress"
_AS_UPDATE = "tasks apply it between two transactions, as with update-task"
_BEGINNING = "checked; used only by a relay log that has not begun yet, while there is no task"
_AT_ONCE = "at once, nothing is interrupted"

_KEYS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "from.host": ("from.host", _SWITCH),
        "from.port": ("from.port", _SWITCH),
        "from.user": ("from.user", _LOGIN),
        "from.password": ("from.password", _LOGIN),
        "from.tls.ca": ("from.security.ssl-ca", _LOGIN),
        "from.tls.cert": ("from.security.ssl-cert", _LOGIN),
        "from.tls.key": ("from.security.ssl-key", _LOGIN),
        "from.tls.caContent": ("from.security.ssl-ca-bytes", _LOGIN),
        "from.tls.certContent": ("from.security.ssl-cert-bytes", _LOGIN),
        "from.tls.keyContent": ("from.security.ssl-key-bytes", _LOGIN),
        "from.tls.allowedCn": ("from.security.cert-allowed-cn", _LOGIN),
        "from.allowPublicKeyRetrieval": ("from.security.allow-public-key-retrieval", _LOGIN),
        "serverId": ("server-id", _LOGIN),
        "purge.intervalSeconds": ("purge.interval", _AT_ONCE),
        "purge.expiresHours": ("purge.expires", _AT_ONCE),
        "purge.remainSpaceGib": ("purge.remain-space", _AT_ONCE),
        "enableGtid": ("enable-gtid", "for tasks that begin from now on"),
        "relayStart.file": (
            "relay-binlog-name",
            _BEGINNING,
        ),
        "relayStart.gtidSet": (
            "relay-binlog-gtid",
            _BEGINNING,
        ),
        "flavor": ("flavor", _LOGIN),
        "caseSensitive": ("case-sensitive", "for tasks that begin from now on"),
        "disabled": ("enable", ""),
        "filters": ("filters", _AS_UPDATE),
    }
)
"""By the name in a stored SourceConfig's JSON: the key of the file, and how a change takes effect."""

_SESSION = "from.session."
_IMPLIED = ("relayStart.pos", "sourceId")
_UNSHOWN = frozenset({"from.password", "from.tls.caContent", "from.tls.certContent", "from.tls.keyContent"})
_ANY_FLAVOR = ("", "auto")


def source_changes(before: config.SourceConfig, after: config.SourceConfig) -> tuple[pb.SourceChange, ...]:
    """The keys whose values differ; secrets and certificates are not shown."""
    old, new = (flat(json_format.MessageToDict(as_comparable(one))) for one in (before, after))
    changes: list[pb.SourceChange] = []
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name, ""), new.get(name, "")
        if was == now or name in _IMPLIED:
            continue
        key, effect = (name, _LOGIN) if name.startswith(_SESSION) else _KEYS.get(name, (name, _LOGIN))
        if name in _UNSHOWN:
            was = now = "(not shown)"
        if name == "disabled":
            was, now = ("false", "true") if was else ("true", "false")
            effect = "its tasks continue" if now == "true" else "its tasks stop until it is enabled again"
        if name == "filters":
            was, now = f"{len(before.filters)} rules", f"{len(after.filters)} rules"
        changes.append(pb.SourceChange(source=after.source_id, key=key, before=was, after=now, effect=effect))
    return tuple(changes)


def check_changeable(before: config.SourceConfig, after: config.SourceConfig, tasks: Sequence[str]) -> None:
    """Raises SOURCE_UPDATE_FIXED for a key that must not change while the source has ``tasks``."""
    fixed: list[tuple[str, str, str]] = []
    if before.case_sensitive != after.case_sensitive:
        fixed.append(("case-sensitive", str(before.case_sensitive).lower(), str(after.case_sensitive).lower()))
    if before.flavor != after.flavor and not {before.flavor, after.flavor}.intersection(_ANY_FLAVOR):
        fixed.append(("flavor", before.flavor, after.flavor))
    if tasks and fixed:
        key, was, now = fixed[0]
        raise errors.master.SOURCE_UPDATE_FIXED(
            source=after.source_id, key=key, before=was, after=now, tasks=", ".join(tasks)
        )


def check_password(before: config.SourceConfig, after: config.SourceConfig, form: PasswordForm) -> None:
    """Raises SOURCE_PASSWORD_NEEDED for a file that has another address and does not contain the password itself.

    A caller that changes the address decides which server receives the password, so it must know the password: a
    reference or an encrypted text can be copied without knowing it. ``form``: how the file gives it. A file without a
    password is accepted only if none is stored.
    """
    old, new = getattr(before, "from"), getattr(after, "from")
    was, now = f"{old.host}:{old.port}", f"{new.host}:{new.port}"
    if was == now or form is PasswordForm.PLAIN or (form is PasswordForm.NONE and not old.password):
        return
    raise errors.master.SOURCE_PASSWORD_NEEDED(source=after.source_id, before=was, after=now, given=form.value)


def moves_away(changes: Sequence[pb.SourceChange]) -> bool:
    """Whether a change makes the source be read from another address."""
    return any(one.effect == _SWITCH for one in changes)


def asks_the_source(changes: Sequence[pb.SourceChange], after: config.SourceConfig) -> bool:
    """Whether a connection to the source must be tested: not if it is only disabled, as it may be gone."""
    return not (after.disabled and [one.key for one in changes] == ["enable"])
