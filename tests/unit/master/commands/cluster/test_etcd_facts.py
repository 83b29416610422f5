"""Records are counted by folder, without their values."""

from __future__ import annotations

from shardmerge.master.commands.cluster.etcd_facts import folder_of_keys, folders
from shardmerge.proto import diagnostics_pb2 as pb
from shardmerge.proto.etcd import Record


def test_records_are_counted_by_folder() -> None:
    records = [
        Record(f"/shardmerge/v1/{key}", value, 1, 1, 0)
        for key, value in (("source/ä", b"12345"), ("leader", b"1"), ("source/b", b"123"), ("new/a/b", b""))
    ]
    assert list(folders(records)) == [
        pb.EtcdFolder(prefix="/shardmerge/v1/leader", records=1, key_bytes=21, value_bytes=1, largest_bytes=1),
        pb.EtcdFolder(prefix="/shardmerge/v1/new/", records=1, key_bytes=22),
        pb.EtcdFolder(prefix="/shardmerge/v1/source/", records=2, key_bytes=47, value_bytes=8, largest_bytes=5),
    ]


def test_the_history_is_counted_by_its_keys() -> None:
    assert folder_of_keys("/h/", ("/h/ä", "/h/b")) == pb.EtcdFolder(prefix="/h/", records=2, key_bytes=9)
    assert folder_of_keys("/h/", ()) == pb.EtcdFolder(prefix="/h/")
