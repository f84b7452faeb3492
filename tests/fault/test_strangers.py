"""A short form of `make strangers`, without its times; and what its judge finds."""

from __future__ import annotations

import sys

import msgspec
import pytest
from tests.fault.strangers.run import MIB, SHORT, Use, Window, judged, visit

pytestmark = pytest.mark.fault

STRANGERS = (
    "kafka-dropped",
    "kafka-bombs",
    "mqtt-connect-properties",
    "admin-bodies",
    "control-unfinished",
    "tls-half-open",
)
QUIET = Window({"kafka": 0.001}, {"kafka": 0.002}, {"kafka": 0.003}, [])
SMALL = Use(100 * MIB, 100 * MIB, 50, 1.0)


@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_costs_what_the_page_says(name: str) -> None:
    found = visit(name, sys.executable, SHORT)
    assert [text for text in found.problems if "p99" not in text] == [], found.did


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        (
            {"during": msgspec.structs.replace(QUIET, p99={"kafka": 0.06})},
            ["kafka: p99 60 ms beside the stranger, 50 is the most"],
        ),
        (
            {"after": msgspec.structs.replace(QUIET, p99={"kafka": 0.013})},
            ["kafka: p99 13 ms after it, 2 before"],
        ),
        (
            {"during": msgspec.structs.replace(QUIET, lost=["kafka: waited in vain"])},
            ["kafka: waited in vain"],
        ),
        (
            {"used": msgspec.structs.replace(SMALL, peak=600 * MIB)},
            ["600 MiB of memory, 512 is the most"],
        ),
        (
            {"used_after": msgspec.structs.replace(SMALL, resident=140 * MIB, files=70)},
            ["140 MiB after it, 100 before", "70 descriptors after it, 50 before"],
        ),
    ],
)
def test_what_is_wrong(changed: dict[str, Window | Use], expected: list[str]) -> None:
    seen = {"before": QUIET, "during": QUIET, "after": QUIET}
    used = {"used_before": SMALL, "used": SMALL, "used_after": SMALL}
    assert judged(**{**seen, **used, **changed}) == expected  # type: ignore[arg-type]
