"""The scenario `lan`: its order, what it counts, and how it goes on after an interruption. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fault.hosts import lan
from tests.fault.hosts.result import Options

pytestmark = pytest.mark.fault


def stream(
    sent: dict[tuple[str, str], int], *accounts: dict[str, Any], payload: int = 1000
) -> dict[str, Any]:
    none = {"live": 0, "repaired": 0, "replayed": 0, "expired": {}}
    return {
        "sent": [{"carrier": carrier, "purpose": p, "bytes": size} for (carrier, p), size in sent.items()],
        "accounts": [{**none, "addressed": 10, **account} for account in accounts],
        "pace": {"payload_bytes": payload},
    }


GROUP, UNICAST = ("ip-multicast", "data"), ("unicast", "data")
REPLAY, BEAT = ("unicast", "replay"), ("unicast", "heartbeat")


@pytest.mark.parametrize(
    ("one", "sent", "needed"),
    [
        (stream({GROUP: 1050}, {"live": 10}, {"live": 10}), 1050, 1000),
        (stream({GROUP: 1050, BEAT: 9000}, {"live": 10}, {"live": 10}), 1050, 1000),  # beside a quiet stream
        (stream({GROUP: 500, UNICAST: 1000}, {"live": 10}, {"live": 10}), 1500, 1500),
        # what was lost was to be sent again, once
        (stream({GROUP: 1000, REPLAY: 400}, {"live": 6, "replayed": 4}, {"live": 10}), 1400, 1400),
        # sent again and again in vain
        (stream({GROUP: 1000, REPLAY: 9000}, {"live": 10}, {"live": 9, "repaired": 1}), 10_000, 1100),
        # by unicast more often than hosts have got it
        (stream({UNICAST: 9000}, {"live": 10}), 9000, 1000),
        (stream({}, {"addressed": 0}, payload=0), 0, 0),
    ],
)
def test_what_was_to_be_sent(one: dict[str, Any], sent: int, needed: int) -> None:
    assert lan.sent_and_needed(one) == (sent, needed)


def test_the_order_of_events_is_the_seeds_and_each_comes() -> None:
    names = lan.chosen(Options())
    first = lan.order(names, 1, 0, 10)
    assert first == lan.order(names, 1, 0, 10)
    assert first != lan.order(names, 2, 0, 10)
    assert first != lan.order(names, 1, 1, 10)
    assert set(first) == set(lan.EVENTS) - {"jumbo"}
    assert lan.order(("jumbo",), 1, 0, 10) == []


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    said: list[str] = []
    options = Options(events=("link",), out=tmp_path, say=said.append)
    assert lan.resumed(options) == lan.Progress()
    lan.keep(lan.Progress(done=20, happened={"link": 20}, late=["x"]), options)
    assert lan.resumed(options).happened == {"link": 20}
    assert said == ["goes on after 20 events"]
    assert lan.resumed(Options(events=("link",), out=tmp_path, seed=2)) == lan.Progress()
    assert lan.label(Options(events=("link", "mtu"))) == lan.label(Options(events=("mtu", "link")))


def test_unknown_events_are_refused() -> None:
    with pytest.raises(SystemExit, match="there are forget, quiet"):
        lan.chosen(Options(events=("link", "fire")))


def test_an_origin_that_sends_too_much_is_a_problem_of_a_long_run() -> None:
    progress = lan.Progress(done=30, bytes={"h1": [140 << 20, 100 << 20], "h2": [120 << 20, 100 << 20]})
    assert lan.shown(progress, True).problems == ["h1 has sent 1.40 times the bytes that it was to send"]
    assert lan.shown(progress, False).problems == []
