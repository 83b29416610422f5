"""`dmctl encrypt`: the text that stands for a password in a file."""

from __future__ import annotations

import sys

import click

from ctl.options import shared
from ctl.session import Session


@click.command("encrypt", short_help="encrypt a password for a file")
@click.argument("plain", required=False)
@click.option(
    "--secret-key-path",
    metavar="FILE",
    help="the key  [env: SHARDMERGE_SECRET_KEY, or secret-key-path of dmctl's --config file]",
)
@click.option("--new-key", metavar="FILE", help="make a key file that only you can read, and nothing else")
@shared()
def encrypt(plain: str | None, secret_key_path: str | None, new_key: str | None) -> int:
    """Print what stands for a password in a task or source file. No server is asked.

    Without PLAIN it is asked for without echo, or read from standard input, one line. A PLAIN on the command line is
    seen by whoever lists processes, and kept by the shell's history.

    \b
    Example:
        dmctl encrypt --secret-key-path key.txt
    """
    from proto import secret  # cryptography takes 0.1 s to import: only when it is needed

    if new_key is not None:
        if plain is not None:
            raise click.UsageError("encrypt --new-key takes no PLAIN")
        secret.new_key(new_key)
        click.echo(f"{new_key} holds a new key: give it to every dm-master and dm-worker (secret-key-path)", err=True)
        return 0
    path = secret_key_path or Session.current().settings.secret_key_path
    if not path:
        raise click.UsageError("encrypt needs a key: --secret-key-path FILE, or make one with --new-key FILE")
    key = secret.load_key(path)
    if plain is None:
        plain = _asked()
    if not plain or not plain.isprintable():
        raise click.UsageError("a password is one line of characters that can be printed")
    if secret.is_encrypted(plain):
        raise click.UsageError("it is encrypted already")
    print(key.encrypt(plain))
    return 0


def _asked() -> str:
    if sys.stdin.isatty():
        return click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return sys.stdin.readline().removesuffix("\n").removesuffix("\r")
