"""`dmctl encrypt`: prints the encrypted form of a password for a file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from shardmerge.ctl.files import read_password, read_text
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import errors
from shardmerge.proto.files.durable_file import rewrite


@click.command("encrypt")
@click.argument("plain", required=False)
@click.option(
    "--secret-key-path",
    metavar="FILE",
    help="the key file  [env: SHARDMERGE_SECRET_KEY, or secret-key-path of dmctl's --config file; default: the key of "
    "this user's daemons]",
)
@click.option("--new-key", metavar="FILE", help="make a key file that only you can read, and nothing else")
@click.option("--add-key", metavar="FILE", help="put a new key into a key file; until --turn-keys it only decrypts")
@click.option("--turn-keys", metavar="FILE", help="make a key file's last key the one that encrypts")
@click.option(
    "--rekey", metavar="FILE", multiple=True, help="encrypt all secrets of a task or source file, in place; repeatable"
)
@click.option("--metrics-token", is_flag=True, help="print the token with which /metrics is read without TLS")
@shared(by_source=False)
def encrypt(
    plain: str | None,
    secret_key_path: str | None,
    new_key: str | None,
    add_key: str | None,
    turn_keys: str | None,
    rekey: tuple[str, ...],
    metrics_token: bool,
) -> int:
    """Print the encrypted form of a password for a task or source file. No server is called.

    Without PLAIN the password is read without echo, or as one line from standard input. A PLAIN on the command line is
    visible in the list of processes, and in the shell's history.

    --rekey encrypts the secrets in plain text in a file, and encrypts again those that DM's `dmctl encrypt` or an older
    key made. To replace a key while tasks run: docs/how-to/secrets.md. --metrics-token is for Prometheus:
    docs/how-to/monitor.md.

    \b
    Example:
        dmctl encrypt --secret-key-path key.txt
        dmctl encrypt --secret-key-path key.txt --rekey merge.yaml --rekey mysql-01.yaml
    """
    from shardmerge.proto import secret  # importing cryptography takes 0.1 s: only when needed

    wanted = [option for option in (new_key, add_key, turn_keys, rekey, metrics_token) if option]
    if len(wanted) > 1 or (wanted and plain is not None):
        raise click.UsageError(
            "encrypt takes one of PLAIN, --new-key, --add-key, --turn-keys, --rekey, --metrics-token"
        )
    if new_key is not None:
        secret.new_key(new_key)
        click.echo(f"{new_key} holds a new key: copy it to every dm-master and dm-worker (secret-key-path)", err=True)
        return 0
    if add_key is not None:
        secret.add_key(add_key)
        click.echo(
            f"{add_key} holds a further key: copy it to all dm-masters and dm-workers, then --turn-keys", err=True
        )
        return 0
    if turn_keys is not None:
        secret.rotate_keys(turn_keys)
        click.echo(f"{turn_keys}: its last key encrypts now: copy it to every dm-master and dm-worker", err=True)
        return 0
    path = secret_key_path or Session.current().settings.secret_key_path or _shared_key()
    if not path:
        raise click.UsageError("encrypt needs a key: --secret-key-path FILE, or make one with --new-key FILE")
    if rekey:
        secret.use(path)
        for file in rekey:
            changed = _rekeyed(file)
            click.echo(f"{file}: {'its secrets are encrypted' if changed else 'nothing to encrypt'}", err=True)
        return 0
    key = secret.load_key(path)
    if metrics_token:
        print(key.metrics_tokens[0])
        return 0
    if plain is None:
        plain = read_password("Password", confirm=True)
    if not plain or not plain.isprintable():
        raise click.UsageError("a password is one line of characters that can be printed")
    if secret.is_encrypted(plain):
        raise click.UsageError("it is encrypted already")
    print(key.encrypt(plain))
    return 0


def _shared_key() -> str:
    """The key that daemons of this user on this machine share, "" where there is none."""
    from shardmerge.proto.config.secrets.key_file import default_key_path

    path = default_key_path(os.environ)
    return path if Path(path).exists() else ""


def _rekeyed(path: str) -> bool:
    """Encrypt a file's secrets in place; whether that changed it."""
    # pydantic takes 0.2 s to import: only when it is needed.
    from shardmerge.proto.config.check import FileKind, kind_of
    from shardmerge.proto.config.document.yaml_file import read
    from shardmerge.proto.config.stored_text import OF_SOURCE, OF_TASK, encrypted_in_place
    from shardmerge.proto.secret import to_unbound

    text = read_text(path)
    document = read(text, path)
    kind = kind_of(document)
    if kind not in (FileKind.TASK, FileKind.SOURCE):
        raise click.UsageError(f"{path} is no task or source file")
    stored = encrypted_in_place(document, text, OF_TASK if kind is FileKind.TASK else OF_SOURCE, to_unbound)
    if stored == text:
        return False
    try:
        rewrite(path, stored)
    except OSError as error:
        raise errors.ctl.WRITE_FAILED(path=path, reason=(error.strerror or str(error)).lower()) from error
    return True
