"""The hosts runs, short: several daemons in a lab, every host's records compared, accounts closed."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fault.hosts.result import Bursts, Options
from tests.fault.hosts.scenarios import SCENARIOS

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _can_make_namespaces(require: Callable[[object, str], None]) -> None:
    require(sys.platform == "linux" and os.geteuid() == 0, "network namespaces need root")
    require(importlib.util.find_spec("pyroute2"), "pyroute2 is not installed")


def nightly(name: str, options: Options) -> Any:
    return pytest.param(name, options, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("loss", Options(hosts=3, seconds=5, rate=500, loss=0.01), id="1-percent"),
        pytest.param("loss", Options(hosts=3, seconds=5, rate=500, loss=0.1, seed=2), id="10-percent"),
        pytest.param("outage", Options(behind=100_000, phase=2), id="outage"),
        pytest.param("kills", Options(count=4, rate=400, seed=3), id="kills"),
        pytest.param("leader", Options(), id="leader"),
        pytest.param("disk-loss", Options(hosts=3, count=2, rate=150), id="disk-loss"),
        pytest.param("old-copy", Options(hosts=3, count=2, rate=60, age=2), id="old-copy"),
        pytest.param("full-disk", Options(hosts=3, count=2, rate=400), id="full-disk"),
        pytest.param(
            "lan",
            Options(hosts=3, seconds=18, rate=150, seed=5, events=("link", "address", "suspend")),
            id="lan",
        ),
        pytest.param("burst", Options(burst=Bursts((2,), (10.0,), start="fresh")), id="burst"),
        pytest.param(
            "burst",
            Options(burst=Bursts((5,), (6.0,), start="standing", carrier="relay", zones=3, most=1.8)),
            id="relay",
        ),
        pytest.param(
            "burst", Options(burst=Bursts((2,), (4.0,), kind="mqtt", start="fresh")), id="burst-mqtt"
        ),
        # more hosts, records and kinds than above
        nightly("burst", Options(burst=Bursts((2,), (4.0,), (8,), start="standing"))),
        nightly("loss", Options(seconds=8, loss=0.01)),
        nightly("loss", Options(seconds=8, loss=0.1, seed=2)),
        nightly("kills", Options(count=4, seed=3)),
        nightly("disk-loss", Options(count=2, rate=400)),
        nightly("old-copy", Options(hosts=3, count=3, rate=200, age=3)),
        nightly("wire", Options(seconds=1.0, rate=1500, subscribers=(1, 7))),
    ],
)
def test_hosts(name: str, options: Options, tmp_path: Path) -> None:
    result = SCENARIOS[name](options, tmp_path)
    assert not result.problems, "\n".join(result.problems)
    assert result.rows
