"""Follows the pages Rotate passwords, and Add and remove a source, on both kinds of server."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.page_rig import Orders, orders, page, yaml_of
from tests.support.cluster import source_yaml
from tests.support.page import blocks
from tests.support.pair import KINDS
from tests.support.wait import until


@pytest.fixture(scope="module", params=list(KINDS))
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Orders]:
    with orders(tmp_path_factory.mktemp("pages"), request.param) as found:
        found.give_accounts()
        found.create_source("mysql-01")
        found.start(1)
        yield found


def _replaced(text: str, key: str, line: str) -> str:
    """Return a file with another value of a block at its top level."""
    return re.sub(rf"^{key}:.*\n(?: .*\n)*", f"{line}\n", text, flags=re.MULTILINE)


@pytest.mark.turns
def test_rotate_passwords(made: Orders) -> None:
    reader, cluster, name = made.reader, made.cluster, "rotate-passwords"
    for section, file, key, command, error in (
        ("1.", "mysql-01.yaml", "from", "operate-source update", "source-check-failed"),
        ("2.", "orders.yaml", "target-database", "update-task", "target-access-denied"),
    ):
        old = (cluster.directory / file).read_text(encoding="utf-8")
        for block in blocks(page(name), section):
            if block.language == "yaml":
                new = _replaced(old, key, made.filled(block.text.rstrip("\n")))
                cluster.write("wrong.yaml", new.replace("new-password", "wrong-password"))
                refused = reader.command(f"dmctl {command} wrong.yaml", check=False)
                assert refused is not None and refused.code != 0 and error in refused.text
                cluster.write(file, new)
            elif "PROCESSLIST" in block.text:
                until(lambda block=block: reader.run(block) == [[[]]], "the old account has no connection", 60)
            else:
                reader.run(block)
        made.change("mysql-01")
        made.judge("mysql-01")
    assert made.target.query("SELECT User FROM mysql.user WHERE User LIKE 'dm%'") == [("dm2",)]


@pytest.mark.turns
def test_add_and_remove_a_source(made: Orders) -> None:
    reader, cluster, name = made.reader, made.cluster, "add-and-remove-sources"
    made.wait_replicating()
    text = (cluster.directory / "orders.yaml").read_text(encoding="utf-8")
    with_two = _replaced(made.task(1, 2), "target-database", re.findall("^target-database:.*$", text, re.MULTILINE)[0])
    assert yaml_of(name, "1.")[0] in with_two
    cluster.write("mysql-02.yaml", source_yaml("mysql-02", made.sources["mysql-02"]))
    made.write(with_two)
    reader.follow(page(name), "1.")
    made.change()
    of_both = made.judge()
    made.change()
    *commands, deletion = blocks(page(name), "2.")
    stop, update, forget = commands
    reader.run(stop)
    made.write(text)
    reader.run(update)
    assert set(cluster.subtasks("orders")) == {"mysql-01"}
    reader.run(forget)
    made.change()
    cluster.wait_caught_up("orders", {"mysql-01": made.sources["mysql-01"]})
    # The rows of the source that has left are there; the way back continues at its position.
    made.write(with_two)
    reader.follow(page(name), "The way back")
    made.wait_replicating()
    assert made.judge() != of_both
    reader.run(stop)
    made.write(text)
    reader.run(update)
    reader.run(forget)
    reader.run(deletion)
    made.judge("mysql-01")
