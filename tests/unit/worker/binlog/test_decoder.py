"""The decoder on a real server's bytes, kept in a file, and on made-up and damaged ones."""

from __future__ import annotations

import itertools
import random
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.row_change import ChangeKind, RowChange
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import PartitionId, TablePlan
from tests.support.all_types import TABLE
from tests.support.binlog import (
    Binlog,
    as_version_2,
    body_of,
    forge,
    only,
    plan_of,
    query,
    read_binlog,
    row_of,
    split,
    without_checksums,
)
from tests.support.examples import examples

FILE = Path(__file__).parent / "data" / "mariadb-10.11.binlog"
BINLOG = read_binlog(FILE)
PLAIN = without_checksums(BINLOG)
PLAN = plan_of(TABLE)

GTID = forge(EventType.MARIADB_GTID, struct.pack("<QIB", 1, 0, 0) + bytes(6))
XID = forge(EventType.XID, bytes(8))
SMALL = plan_of(
    Table(
        "d",
        "small",
        (
            Column("id", ValueKind.INTEGER, "int(11)", False),
            Column("v", ValueKind.STRING, "varchar(20)", True, charset="utf8mb4"),
        ),
        (0,),
        "PRIMARY",
        (),
        False,
        "InnoDB",
    )
)


def table_map(table_id: int = 7, name: bytes = b"small") -> bytes:
    head = table_id.to_bytes(6, "little") + b"\1\0" + b"\1d\0" + bytes([len(name)]) + name + b"\0"
    return forge(EventType.TABLE_MAP, head + b"\2" + bytes([3, 15]) + b"\2" + struct.pack("<H", 80) + b"\2")


def image(number: int, text: bytes | None = b"x") -> bytes:
    nulls = b"\xfe" if text is None else b"\xfc"
    return nulls + struct.pack("<i", number) + (b"" if text is None else bytes([len(text)]) + text)


def rows_event(code: EventType, *images: bytes, table_id: int = 7, ends: bool = True, present: bytes = b"\3") -> bytes:
    bitmaps = present * 2 if code == EventType.UPDATE_ROWS_V1 else present
    head = table_id.to_bytes(6, "little") + (b"\1\0" if ends else b"\0\0") + b"\2" + bitmaps
    return forge(code, head + b"".join(images))


def insert(*numbers: int, ends: bool = True) -> bytes:
    return rows_event(EventType.WRITE_ROWS_V1, *(image(number) for number in numbers), ends=ends)


def opened(plan: TablePlan = SMALL, source_keys: bool = False) -> BlockDecoder:
    decoder = BlockDecoder(only(plan), source_keys=source_keys, source="s1")
    decoder.open(BINLOG.format_description)
    return decoder


def decode(binlog: Binlog, plan: TablePlan) -> list[RowChange]:
    decoder = BlockDecoder(only(plan), source="s1")
    decoder.open(binlog.format_description)
    return decoder.decode(binlog.events)


def numbers(changes: list[RowChange]) -> list[bytes]:
    return [(change.after or change.before)[0] for change in changes]


def fails(decoder: BlockDecoder, *events: bytes) -> ShardmergeError:
    with pytest.raises(ShardmergeError) as caught:
        decoder.decode(b"".join(events))
    return caught.value


EXPECTED = decode(BINLOG, PLAN)


def test_the_kept_file() -> None:
    assert [change.kind for change in EXPECTED].count(ChangeKind.INSERT) == 29
    assert [change.kind for change in EXPECTED].count(ChangeKind.UPDATE) == 4
    assert [change.kind for change in EXPECTED].count(ChangeKind.DELETE) == 3
    first = dict(zip((each.column.name for each in PLAN.columns), EXPECTED[15].after, strict=True))
    assert first["t6"] == b"'838:59:59.999999'"
    assert first["dt5"] == b"'9999-12-31 23:59:59.99999'"


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_blocks_and_checksums_make_no_difference(cut: int) -> None:
    expected = [row_of(change) for change in EXPECTED]
    assert [row_of(change) for change in decode(PLAIN, PLAN)] == expected
    second = BINLOG.of(as_version_2(event) for event in BINLOG.each())
    assert [row_of(change) for change in decode(second, PLAN)] == expected
    decoder, events, found = opened(PLAN), BINLOG.each(), list[RowChange]()
    for at in range(0, len(events), cut):
        found += decoder.decode(b"".join(events[at : at + cut]))
    assert [row_of(change) for change in found] == expected


def test_byte_and_event_locate_a_change() -> None:
    for change in EXPECTED:
        event = BINLOG.each()[change.event]
        assert BINLOG.events[change.byte :].startswith(event)


def contents(batch: Batch) -> object:
    """All that a batch holds."""
    keys = {
        name: {
            key: (item.existed, item.existence_unknown, item.image, item.plan.shard, item.position)
            for key, item in keys.items()
        }
        for name, keys in batch.targets()
    }
    return keys, batch.unkeyed, batch.changes, batch.size


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_a_lanes_share_is_what_all_changes_give_it(lanes: int, keyed: bool) -> None:
    """The short way of a lane (pick) and the long way (decode, then Batch.add) end in the same batch."""
    plan = PLAN if keyed else replace(PLAN, key=())
    moved = table_map() + rows_event(EventType.UPDATE_ROWS_V1, *(image(at) for at in (1, 2, 2, 3, 9, 9, 5, 9000)))
    again = table_map() + insert(1, 4, 5) + table_map() + rows_event(EventType.DELETE_ROWS_V1, image(4), image(7))
    small = replace(SMALL, shard=1) if keyed else replace(SMALL, shard=1, key=())
    shares = 0
    for lane in range(lanes):
        for of, events in ((plan, BINLOG.events), (small, moved + XID + again + XID)):
            short, long = Batch(lane, lanes, "f"), Batch(lane, lanes, "f")
            decoder = BlockDecoder(only(of), source="s1", bucket=Bucket(lane, lanes))
            decoder.open(BINLOG.format_description)
            count = decoder.pick(events, 0, "f", short)
            for change in decode(replace(BINLOG, events=events), of):
                long.add(change, int.from_bytes(events[change.byte + 13 : change.byte + 17], "little"))
            assert contents(short) == contents(long)
            assert count == len(list(split(events)))
            shares += short.changes
    assert shares >= len(EXPECTED) + 9


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_lanes_share_of_a_loose_table_is_what_all_changes_give_it(lanes: int, own: bool) -> None:
    plan = replace(SMALL, may_lack_rows=True, own_keys=own)
    events = b"".join(
        (
            table_map(),
            rows_event(EventType.UPDATE_ROWS_V1, *(image(at) for at in (1, 2, 2, 3, 9, 9, 5, 9000))),
            table_map(),
            rows_event(EventType.DELETE_ROWS_V1, image(4), image(9), image(7)),
            table_map(),
            insert(4, 5, 11),
            table_map(),
            rows_event(EventType.UPDATE_ROWS_V1, image(4), image(4, b"other"), image(11), image(12)),
            XID,
        )
    )
    for lane in range(lanes):
        short, long = Batch(lane, lanes, "f"), Batch(lane, lanes, "f")
        decoder = BlockDecoder(only(plan), source="s1", bucket=Bucket(lane, lanes))
        decoder.open(BINLOG.format_description)
        decoder.pick(events, 0, "f", short)
        for change in decode(replace(BINLOG, events=events), plan):
            long.add(change, int.from_bytes(events[change.byte + 13 : change.byte + 17], "little"))
        assert contents(short) == contents(long)
        assert any(state.existence_unknown for _, keys in short.targets() for state in keys.values())


CHANGES = b"".join(
    (
        table_map() + insert(1),
        table_map() + rows_event(EventType.UPDATE_ROWS_V1, image(1), image(1, b"y")),
        table_map() + rows_event(EventType.DELETE_ROWS_V1, image(1)),
        table_map() + insert(2) + XID,
    )
)


@pytest.mark.parametrize("mask", range(8))
def test_filtered_kinds_of_changes_are_left_out(mask: int) -> None:
    kinds = [kind for kind in ChangeKind if not mask << 1 >> kind & 1]
    decoder = BlockDecoder(only(replace(SMALL, skipped_kinds=mask << 1, may_lack_rows=True)), source="s1", filters=True)
    decoder.open(BINLOG.format_description)
    left = decoder.decode(CHANGES)
    expected = [ChangeKind.INSERT, ChangeKind.UPDATE, ChangeKind.DELETE, ChangeKind.INSERT]
    assert [change.kind for change in left] == [kind for kind in expected if kind in kinds]
    batch = Batch(0, 1)
    assert decoder.pick(CHANGES, 0, "f", batch) == 9
    assert batch.changes == len(left)


def test_a_statement_ends_with_its_filtered_rows_too() -> None:
    decoder = BlockDecoder(only(replace(SMALL, skipped_kinds=0b10)), source="s1", filters=True)
    decoder.open(BINLOG.format_description)
    assert fails(decoder, table_map(), insert(1), insert(2)).spec is errors.decode.MALFORMED_EVENT


def test_a_chunk_sees_filtered_changes() -> None:
    """It is state: without them its rows would not be those at its high watermark (I4)."""
    assert len(decode(replace(BINLOG, events=CHANGES), replace(SMALL, skipped_kinds=0b1110))) == 4


@pytest.mark.parametrize("kind", list(ChangeKind))
def test_a_filter_may_stop_before_a_kind_of_change(kind: ChangeKind) -> None:
    def filtered() -> BlockDecoder:
        decoder = BlockDecoder(only(replace(SMALL, stop_kinds=1 << kind)), source="s1", filters=True)
        decoder.open(BINLOG.format_description)
        return decoder

    error = fails(filtered(), CHANGES)
    assert error.spec is errors.replicate.ROWS_FILTERED
    assert kind.name.lower() in error.message
    # An operator who names its place passes it over, with its rows on record.
    ends = {int(error.values["position"])}
    first = CHANGES[: -len(table_map() + insert(2) + XID)]
    changes, unread = filtered().decode_skipping(first, 0, frozenset(ends))
    assert not unread
    assert kind in [change.kind for change in changes]
    # What was committed before a restart is no matter any more.
    assert len(filtered().decode(CHANGES, skip_events=8)) == 0


def test_a_rolled_back_group_never_reaches_a_batch() -> None:
    batch = Batch(0, 1)
    decoder = opened(SMALL)
    events = GTID + table_map() + insert(1) + XID + GTID + table_map() + insert(2) + query(b"ROLLBACK")
    assert decoder.pick(events + GTID + table_map() + insert(3) + XID, 0, "f", batch) == 12
    assert [key for _, keys in batch.targets() for key in keys] == [b"1", b"3"]


def test_it_runs_uncompiled_too(tmp_path: Path) -> None:
    """The same sources without Cython make the same changes (and so guard the compiled arithmetic)."""
    script = tmp_path / "uncompiled.py"
    script.write_text(
        "import sys, importlib.util as iu, importlib.machinery as im\n"
        "from pathlib import Path\n"
        "class Plain:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        core, binlog = 'shardmerge.worker.core.', 'shardmerge.worker.binlog.'\n"
        "        rows = ('column_codec', 'image_scanner', 'image_literals', 'image_reader', 'literal_buffer',\n"
        "                'numbers', 'temporal', 'text_literals', 'uncomputed.image_rows', 'uncomputed.text_rows')\n"
        "        if name in (core + 'row_change', core + 'batch', core + 'uncomputed', binlog + 'crc32',\n"
        "                    binlog + 'decoder', *(binlog + 'rows.' + row for row in rows)):\n"
        "            return iu.spec_from_file_location(name, Path(path[0]) / (name.rpartition('.')[2] + '.py'))\n"
        "sys.meta_path.insert(0, Plain())\n"
        "from shardmerge.worker.binlog import is_compiled\n"
        "from shardmerge.worker.binlog.decoder import BlockDecoder\n"
        "from tests.support.all_types import TABLE\n"
        "from tests.support.binlog import only, plan_of, read_binlog\n"
        "assert not is_compiled()\n"
        "binlog = read_binlog(Path(sys.argv[1]))\n"
        "decoder = BlockDecoder(only(plan_of(TABLE)))\n"
        "decoder.open(binlog.format_description)\n"
        "print([(change.before, change.after) for change in decoder.decode(binlog.events)])\n"
        "from shardmerge.worker.core.batch import Batch\n"
        "batch = Batch(0, 1)\n"
        "decoder.pick(binlog.events, 0, 'f', batch)\n"
        "assert batch.changes, 'nothing was picked'\n",
        encoding="utf-8",
    )
    root = Path(__file__).parents[4]
    ran = subprocess.run(
        [sys.executable, str(script), str(FILE)], capture_output=True, text=True, check=False, cwd=root,
        env={"PYTHONPATH": str(root), "PATH": ""},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == str([(change.before, change.after) for change in EXPECTED])


def test_rows_of_other_tables_are_skipped_and_asked_for_once() -> None:
    asked: list[tuple[str, str]] = []

    def resolve(schema: str, table: str) -> TablePlan | None:
        asked.append((schema, table))
        return SMALL if table == "small" else None

    decoder = BlockDecoder(resolve)
    decoder.open(BINLOG.format_description)
    other = table_map(8, b"other")
    group = [
        GTID,
        table_map(),
        other,
        insert(1, ends=False),
        rows_event(EventType.WRITE_ROWS_V1, b"??", table_id=8),
        XID,
    ]
    assert numbers(decoder.decode(b"".join(group * 3))) == [b"1"] * 3
    assert asked == [("d", "small"), ("d", "other")]
    # The same id for another table, and a new file.
    decoder.decode(GTID + table_map(8))
    decoder.decode(BINLOG.format_description + table_map(8))
    assert asked[2:] == [("d", "small"), ("d", "small")]


def test_what_resolve_raises_comes_through() -> None:
    def resolve(schema: str, table: str) -> TablePlan | None:
        raise errors.config.ID_OVERFLOW(schema=schema, table=table)

    decoder = BlockDecoder(resolve)
    decoder.open(BINLOG.format_description)
    assert fails(decoder, GTID, table_map()).code == errors.config.ID_OVERFLOW.code


def test_a_group_in_pieces_keeps_its_table_maps() -> None:
    decoder = opened()
    assert numbers(decoder.decode(GTID + table_map() + insert(1, 2, ends=False))) == [b"1", b"2"]
    assert numbers(decoder.decode(insert(3, ends=False))) == [b"3"]
    assert numbers(decoder.decode(insert(4) + XID)) == [b"4"]
    assert fails(decoder, insert(5)).spec.name == "malformed-event"  # its statement has ended


def test_events_to_skip_still_map_tables() -> None:
    block = [GTID, table_map(), insert(1, ends=False), insert(2, ends=False), insert(3), XID]
    for skip, expected in ((0, [1, 2, 3]), (2, [1, 2, 3]), (3, [2, 3]), (4, [3]), (5, []), (6, [])):
        found = opened().decode(b"".join(block), skip)
        assert numbers(found) == [b"%d" % number for number in expected]
        assert [change.event for change in found] == list(range(max(skip, 2), 5))


@pytest.mark.parametrize(("before", "after"), [(b"abc", b"ab"), (b"ab", b"abc")])
def test_an_update_to_or_from_a_prefix_of_the_key_moves_the_row(before: bytes, after: bytes) -> None:
    plan = replace(SMALL, key=(1,))
    batch = Batch(0, 1, "f")
    update = rows_event(EventType.UPDATE_ROWS_V1, image(1, before), image(1, after))
    opened(plan).pick(GTID + table_map() + update + XID, 0, "f", batch)
    [(_, keys)] = batch.targets()
    left = {key: state.image for key, state in keys.items()}
    assert left == {b"'%b'" % before: None, b"'%b'" % after: b"1,'%b'" % after}


def test_updates_deletes_nulls_and_mapped_keys() -> None:
    plan = plan_of(SMALL.table, {"id": PartitionId(1 << 40, 40)})
    decoder = opened(plan, source_keys=True)
    update = rows_event(EventType.UPDATE_ROWS_V1, image(1, None), image(2, b"it's"))
    delete = rows_event(EventType.DELETE_ROWS_V1, image(2, b""))
    changed, gone = decoder.decode(GTID + table_map() + update + table_map() + delete + XID)
    base = 1 << 40
    assert row_of(changed) == (
        ChangeKind.UPDATE, plan, (b"%d" % (base + 1), b"NULL"), (b"%d" % (base + 2), b"'it\\'s'"), (b"1",), (b"2",)
    )  # fmt: skip
    assert row_of(gone) == (ChangeKind.DELETE, plan, (b"%d" % (base + 2), b"''"), (), (b"2",), ())
    assert fails(decoder, GTID, table_map(), insert(-1)).spec.name == "id-overflow"


@given(st.integers(1, 31), st.data())
def test_partition_id_of_a_row_image_never_wraps(bits: int, data: st.DataObject) -> None:
    most = (1 << bits) - 1
    number = data.draw(st.sampled_from((0, 1, most, most + 1)) | st.integers(-(1 << 31), (1 << 31) - 1))
    if number > (1 << 31) - 1:
        return
    decoder = opened(plan_of(SMALL.table, {"id": PartitionId(3 << 44, bits)}))
    block = GTID + table_map() + insert(number) + XID
    if 0 <= number <= most:
        assert numbers(decoder.decode(block)) == [b"%d" % ((3 << 44) + number)]
    else:
        error = fails(decoder, block)
        assert (error.spec.name, error.values["value"]) == ("id-overflow", str(number))


def test_a_column_that_is_not_written_may_be_absent_but_no_other() -> None:
    plan = plan_of(SMALL.table, leave_out="v")
    absent = rows_event(EventType.WRITE_ROWS_V1, b"\xfe" + struct.pack("<i", 5), present=b"\1")
    assert [change.after for change in opened(plan).decode(table_map() + absent)] == [(b"5",)]
    error = fails(opened(), table_map(), absent)
    assert (error.spec.name, error.values["column"]) == ("row-image-incomplete", "v")


def test_rolled_back_groups() -> None:
    kept = [GTID, table_map(), insert(1), XID]
    gone = [GTID, table_map(), insert(2), table_map(), insert(3), query(b"ROLLBACK")]
    assert numbers(opened().decode(b"".join(kept + gone + kept))) == [b"1", b"1"]
    # Rows that were given away, that cannot roll back, of which a part stays.
    decoder = opened()
    decoder.decode(GTID + table_map() + insert(2))
    assert fails(decoder, query(b"ROLLBACK")).spec.name == "rolled-back-rows"
    isam = replace(SMALL, table=replace(SMALL.table, engine="MyISAM"))
    assert fails(opened(isam), *gone).spec.name == "rolled-back-rows"
    assert fails(opened(), *gone[:-1], query(b"ROLLBACK TO `p`")).spec.name == "rolled-back-rows"
    # A restarted stream begins with a group.
    decoder = opened()
    decoder.decode(GTID + table_map() + insert(2))
    decoder.open(BINLOG.format_description)
    assert decoder.decode(b"".join(gone)) == []
    # Nothing of ours in it.
    assert opened().decode(GTID + query(b"ROLLBACK") + GTID + query(b"ROLLBACK TO `p`")) == []


def test_prepared_groups() -> None:
    group = [GTID, query(b"XA START X'61'"), table_map(), insert(1), query(b"XA END X'61'")]
    one_phase, prepare = (forge(EventType.XA_PREPARE, flag + bytes(12)) for flag in (b"\1", b"\0"))
    assert numbers(opened().decode(b"".join([*group, one_phase]))) == [b"1"]
    assert fails(opened(), *group, prepare).spec.name == "prepared-rows"
    assert opened().decode(GTID + prepare) == []


@pytest.mark.parametrize(
    "code",
    [
        EventType.TRANSACTION_PAYLOAD,
        EventType.START_ENCRYPTION,
        EventType.INCIDENT,
        EventType.EXECUTE_LOAD_QUERY,
        EventType.PRE_GA_WRITE_ROWS,
        EventType.START_V3,
        99,
    ],
)
def test_events_that_may_change_rows_stop(code: int) -> None:
    error = fails(opened(), GTID, forge(code, bytes(40), log_pos=4711))
    assert error.spec.name == "unsupported-event"
    assert "4711" in error.message
    assert error.workaround
    assert "{" not in error.message + error.workaround


def test_events_that_may_be_ignored() -> None:
    ignorable = forge(99, bytes(40), flags=0x80)
    dummy = forge(EventType.WRITE_ROWS_V1, (0xFFFFFF).to_bytes(6, "little") + b"\1\0\0\0\0")
    assert opened().decode(GTID + ignorable + dummy + forge(EventType.ANNOTATE_ROWS, b"INSERT") + XID) == []


def test_a_wrong_checksum_is_named_with_its_position() -> None:
    event = bytearray(insert(1))
    event[-6] ^= 1
    error = fails(opened(), GTID, table_map(), bytes(event))
    assert error.spec.name == "event-checksum-wrong"
    assert "1000" in error.message


def test_events_before_a_format_description_are_refused() -> None:
    assert fails(BlockDecoder(only(SMALL)), GTID).spec.name == "malformed-event"


@pytest.mark.parametrize(
    "event",
    [
        insert(1)[:-1],
        insert(1) + b"\0",
        rows_event(EventType.WRITE_ROWS_V1, image(1)[:-1]),
        rows_event(EventType.WRITE_ROWS_V1, image(1) + b"\0"),
        rows_event(EventType.WRITE_ROWS_V1, image(1), image(2)[:3]),
        rows_event(EventType.UPDATE_ROWS_V1, image(1)),
        rows_event(EventType.WRITE_ROWS_V1, image(1), table_id=9),
        forge(EventType.WRITE_ROWS_V1, (7).to_bytes(6, "little") + b"\1\0"),
        forge(EventType.WRITE_ROWS_V1, (7).to_bytes(6, "little") + b"\1\0\3\7" + image(1)),
        forge(EventType.WRITE_ROWS_V2, (7).to_bytes(6, "little") + b"\1\0\1\0\2\3" + image(1)),
        forge(EventType.WRITE_ROWS_V2, (7).to_bytes(6, "little") + b"\1\0\xff\0\2\3" + image(1)),
        forge(EventType.WRITE_ROWS_COMPRESSED_V1, (7).to_bytes(6, "little") + b"\1\0\2\3" + image(1)),
        forge(EventType.TABLE_MAP, body_of(table_map())[:-3]),
        forge(EventType.TABLE_MAP, body_of(table_map())[:9]),
        forge(EventType.QUERY, bytes(5)),
        forge(EventType.QUERY, struct.pack("<IIBHH", 7, 0, 200, 0, 0)),
        forge(EventType.XA_PREPARE, b""),
    ],
    ids=itertools.count(),
)
def test_malformed_events(event: bytes) -> None:
    assert fails(opened(), GTID, table_map(), event).spec.name == "malformed-event"


STRETCH = b"".join(PLAIN.each())


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_damage_ends_in_a_coded_error_or_in_readable_rows(seed: int, hits: int) -> None:
    """Without checksums only the decoder's own checks protect the target from damaged bytes."""
    pick = random.Random(seed)
    damaged = bytearray(STRETCH)
    for _ in range(hits):
        at = pick.randrange(len(damaged))
        match pick.randrange(4):
            case 0:
                damaged[at] ^= 1 << pick.randrange(8)
            case 1:
                damaged[at] = pick.choice((0, 1, 0x7F, 0x80, 0xFB, 0xFC, 0xFE, 0xFF))
            case 2:
                del damaged[at : at + pick.randrange(1, 9)]
            case _:
                damaged[at:at] = pick.randbytes(pick.randrange(1, 9))
    decoder = BlockDecoder(only(PLAN), source="s1")
    decoder.open(PLAIN.format_description)
    try:
        changes = decoder.decode(bytes(damaged))
    except ShardmergeError as error:
        assert error.spec.error_class in ("decode", "config")
        return
    for change in changes:
        for row in (change.before, change.after):
            assert len(row) in (0, len(PLAN.columns))
            assert all(isinstance(value, bytes) and value for value in row)


@given(st.integers(0, len(STRETCH)))
def test_a_cut_stream_gives_the_rows_before_the_cut_or_an_error(cut: int) -> None:
    decoder = BlockDecoder(only(PLAN), source="s1")
    decoder.open(PLAIN.format_description)
    try:
        changes = decoder.decode(STRETCH[:cut])
    except ShardmergeError as error:
        assert error.spec.name == "malformed-event"
        return
    assert [row_of(change) for change in changes] == [row_of(change) for change in EXPECTED[: len(changes)]]
