"""Which packages a package needs, from lines of metadata."""

from __future__ import annotations

from shardmerge.worker.daemon.pack.requirements import needed, normal_name

INSTALLED = {
    "shardmerge": ["grpcio<2,>=1.85", "Google_Re2>=1.1", "etcd3==0.12.0", 'pytest>=8; extra == "dev"', "absent>=1"],
    "grpcio": ["typing-extensions~=4.12"],
    "google-re2": [],
    "etcd3": ["six>=1.12.0", "grpcio"],
    "six": [],
    "typing-extensions": [],
    "pytest": ["pluggy"],
    "pluggy": [],
    "own": ["pandas[fast,All.Of.It]>=2; python_version >= '3.9'"],
    "pandas": ["numpy", 'numba; extra == "fast"', "all-of-it; extra == 'all_of_it'", 'lxml; extra == "xml"'],
    "numpy": [],
    "numba": [],
    "all-of-it": [],
    "lxml": [],
}


def test_what_is_needed_is_found_to_any_depth() -> None:
    assert needed(["shardmerge"], INSTALLED) == {
        *("shardmerge", "grpcio", "google-re2", "etcd3", "six", "typing-extensions")
    }


def test_only_requested_extras_count() -> None:
    assert needed(["Own"], INSTALLED) == {"own", "pandas", "numpy", "numba", "all-of-it"}


def test_names_are_compared_as_indexes_do() -> None:
    assert normal_name("Ruamel_Yaml.clib") == "ruamel-yaml-clib"
    assert needed(["not installed"], INSTALLED) == frozenset()
