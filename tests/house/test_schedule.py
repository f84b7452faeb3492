"""The schedule of `make test` names what exists, and parts no test from those that share its fixtures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import schedule

TESTS = Path(__file__).resolve().parents[1]


def test_what_is_begun_first_exists() -> None:
    for name in schedule.LONGEST:
        file, _, test = name.partition("::")
        text = (TESTS / file).read_text()
        assert bool(test) == (file in schedule.PARTED), name
        function, _, parameter = test.partition("[")
        assert not test or f"def {function}(" in text, name
        assert not parameter or f'"{parameter.removesuffix("]")}"' in text, name


def test_tests_of_parted_files_share_no_fixture_of_their_module() -> None:
    for file in schedule.PARTED:
        text = (TESTS / file).read_text()
        assert 'scope="module"' not in text, file
        shared = re.compile(r"def \w+\([^)]*\bshared_daemon\b")  # of tests/conftest
        assert not shared.search(text), file


@pytest.mark.parametrize(
    ("node", "part"),
    [
        ("tests/fault/test_hosts.py::test_hosts[lan]", "fault/test_hosts.py::test_hosts[lan]"),
        ("tests/clients/test_matrix.py::test_a[x::y]", "clients/test_matrix.py"),
        ("tests/unit/model/test_a.py::TestA::runTest", "unit/model/test_a.py"),
    ],
)
def test_what_a_worker_takes(node: str, part: str) -> None:
    assert schedule.part(node) == part


def test_the_longest_come_first() -> None:
    longest, *_ = schedule.LONGEST
    assert schedule.rank(f"tests/{longest}::test_anything") == 0
    parameters = [
        f"tests/network/test_narrow_links.py::test_a_switch_port_that_drops_long_frames_is_found[{one}]"
        for one in ("IPv4", "IPv6")
    ]
    first, second = map(schedule.rank, parameters)
    assert 0 < first == second < len(schedule.LONGEST)
    assert schedule.rank("tests/network/test_narrow_links.py::test_other") == len(schedule.LONGEST)
