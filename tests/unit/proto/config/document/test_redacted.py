"""A redacted configuration has no secret, in whatever place and form it was written."""

from __future__ import annotations

import time

import pytest
from ruamel.yaml import YAML

from shardmerge.proto.config.document.redacted import UNREADABLE, redacted, scrubbed

_CANARY = "Geheim-4711"
_KEY = f"-----BEGIN PRIVATE KEY-----\n{_CANARY}\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    "text",
    [
        f"from: {{password: {_CANARY}}}",
        f"from: {{password: '{_CANARY}'}}  # {_CANARY}",
        f"# {_CANARY}\nfrom:\n  # password: {_CANARY}\n  password: |\n    {_CANARY}\n",
        f"from: {{password: &p {_CANARY}, user: *p}}",
        f"from: {{password: [{_CANARY}, {{a: {_CANARY}}}]}}",
        f"security: {{ssl-key-base64: {_CANARY}}}",
        "security: {ssl-key-bytes: [" + ", ".join(str(byte) for byte in _CANARY.encode()) + "]}",
        f"spark:\n  spark.hadoop.fs.s3a.secret.key: {_CANARY}\n  spark.authenticate.secret: {_CANARY}",
        f"spark: {{spark.kubernetes.authenticate.submission.oauthToken: {_CANARY}}}",
        f"etcd: ['https://root:{_CANARY}@10.0.0.1:2379']",
        "note: |\n" + "".join(f"  {line}\n" for line in _KEY.splitlines()),
        f"name: enc:v1:{_CANARY}",
        f"text: [{_CANARY}",
        f"etcd: ['https://root:{_CANARY}/a@10.0.0.1:2379']",
        f"etcd: ['https://root:a@{_CANARY}@10.0.0.1:2379/x']",
        f"spark: {{spark.some.url: 'jdbc:mysql://h:3306/x?user=u&passwd={_CANARY}&a=b'}}",
        f"url: 'jdbc:mysql://h:3306/x?user=u&password={_CANARY}'",
        f"options: '-Djavax.net.ssl.trustStorePassword={_CANARY} -Xmx1g'",
        f"note: 'AWS_SECRET_ACCESS_KEY={_CANARY}'",
    ],
)
def test_no_form_of_a_secret_is_left(text: str) -> None:
    shown = redacted(text)
    assert _CANARY not in shown
    assert str(_CANARY.encode()[0]) not in shown


def test_everything_else_stays() -> None:
    text = (
        "name: merge\n"
        "target-database: {host: h, port: 3306, user: dm, password: ''}\n"
        "from: {password: '${DM_PASSWORD}'}\n"
        "expression-filter:\n  token-filter: {schema: s, insert-value-expr: \"a = 'b'\"}\n"
        "secret-key-path: /var/lib/secret.key\n"
        "clean: true\nlist: [1, 2.5, null, text]\n"
    )
    assert YAML(typ="safe").load(redacted(text)) == YAML(typ="safe").load(text)


def test_a_text_that_is_no_configuration_is_left_out() -> None:
    assert redacted(f"password: [{_CANARY}") == UNREADABLE
    assert redacted(f"just {_CANARY}") == UNREADABLE


def test_forms_of_secrets_are_removed_from_any_text() -> None:
    text = f'{{"a": "{_KEY}", "b": "enc:v1:Ab_-=", "c": "unix://u:p@h/x", "d": "http://h:1/x@y"}}'
    shown = scrubbed(text)
    assert _CANARY not in shown and "Ab_" not in shown and "u:p" not in shown
    assert '"d": "http://h:1/x@y"' in shown
    plain = 'http://h:1/x@y https://h/a@b metric{token="a"} secret.key password: "" a=b'
    assert scrubbed(plain) == plain


@pytest.mark.parametrize("text", ["a" * 300_000, "://a:" * 60_000, "token" * 60_000], ids=["word", "URLs", "names"])
def test_the_time_is_linear(text: str) -> None:
    """A text from a daemon cannot keep dmctl busy for minutes."""
    began = time.process_time()
    scrubbed(text)
    assert time.process_time() - began < 5
