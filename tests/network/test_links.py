"""Relayed links: the relay's counts match what hosts see, frame for frame."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.network.conftest import StartLab
from tests.network.traffic import collect, datagrams, reaches, send

from treecast.middleware.dataplane.lab.impairment import Counters
from treecast.middleware.dataplane.lab.lab import Lab, LabError
from treecast.middleware.dataplane.lab.messages import RelayError

PAIR = """
[hosts.alpha]
[hosts.beta]
[[links]]
between = ["alpha", "beta"]
relay = true
"""
COUNT = 2000
_TRIES = 5


def burst(made: Lab, **settings: float) -> tuple[list[int], Counters]:
    """Sends COUNT datagrams from alpha to beta over an impaired link; returns the arrivals and the relay's
    counts.

    If the kernel sends a frame of its own (neighbour discovery) in between, the burst is repeated.
    """
    link = made.link("alpha", "beta")
    for _ in range(_TRIES):
        assert reaches(made, "alpha", "beta")
        link.change(direction="forward", **settings)
        with datagrams(made, "alpha") as alpha, datagrams(made, "beta") as beta:
            before, _ = link.settled()
            send(alpha, made.ipv4("beta"), COUNT)
            arrived = collect(beta)
            after, _ = link.settled()
        link.change(direction="forward", **dict.fromkeys(settings, 0.0))
        counted = Counters(*(getattr(after, n) - getattr(before, n) for n in Counters.__slots__))
        if counted.received == COUNT:
            return arrived, counted
    raise AssertionError(f"the link did not become quiet: {counted}")


def test_a_good_relay_passes_everything(lab: StartLab) -> None:
    arrived, counted = burst(lab(PAIR))
    assert arrived == list(range(COUNT))
    assert (counted.sent, counted.lost, counted.doubled) == (COUNT, 0, 0)


def test_what_the_relay_loses_is_what_does_not_arrive(lab: StartLab) -> None:
    arrived, counted = burst(lab(PAIR), loss=0.1)
    assert len(arrived) == len(set(arrived)) == COUNT - counted.lost
    assert 0 < counted.lost < COUNT


def test_what_the_relay_doubles_arrives_twice(lab: StartLab) -> None:
    arrived, counted = burst(lab(PAIR), duplicate=0.1)
    assert sorted(set(arrived)) == list(range(COUNT))
    assert len(arrived) - COUNT == counted.doubled > 0


def test_what_the_relay_reorders_is_overtaken(lab: StartLab) -> None:
    arrived, counted = burst(lab(PAIR), reorder=0.05)
    assert sorted(arrived) == list(range(COUNT))
    late = sum(1 for at, number in enumerate(arrived) if at and max(arrived[:at]) > number)
    assert late == counted.reordered > 0


def test_interfaces_count_what_the_relay_counts(lab: StartLab) -> None:
    made = lab(PAIR)

    def look() -> list[int]:
        """Returns constant differences: frames that were sent before the relay was ready."""
        forward, backward = made.link("alpha", "beta").settled()
        alpha, beta = made.counters("alpha"), made.counters("beta")
        return [
            alpha["tx_packets"] - forward.received,
            alpha["tx_bytes"] - forward.received_bytes,
            beta["rx_packets"] - forward.sent,
            beta["rx_bytes"] - forward.sent_bytes,
            beta["tx_packets"] - backward.received,
            alpha["rx_bytes"] - backward.sent_bytes,
        ]

    def seen() -> list[int]:
        """Takes readings until no frame of the kernel's own passes between two of them."""
        while (found := look()) != look():
            pass
        return found

    before = seen()
    burst(made, loss=0.3, duplicate=0.2)
    assert seen() == before
    looked = made.link("alpha", "beta").look()
    assert looked.counters["forward"].lost > 0
    assert (looked.missed, looked.refused) == (0, 0)


def test_a_partition_and_its_end(lab: StartLab) -> None:
    made = lab(PAIR)
    link = made.link("alpha", "beta")
    assert reaches(made, "alpha", "beta")
    link.cut()
    assert not reaches(made, "alpha", "beta", tries=2)
    assert link.settled()[0].cut >= 2
    link.heal()
    assert reaches(made, "alpha", "beta")


def test_a_link_can_be_cut_one_way(lab: StartLab) -> None:
    made = lab(PAIR)
    link = made.link("alpha", "beta")
    assert reaches(made, "alpha", "beta")
    link.cut("forward")
    with datagrams(made, "alpha") as alpha, datagrams(made, "beta") as beta:
        send(alpha, made.ipv4("beta"), 3)
        send(beta, made.ipv4("alpha"), 3)
        assert (collect(beta), collect(alpha)) == ([], [0, 1, 2])


def test_delay_comes_from_the_file(lab: StartLab) -> None:
    made = lab(PAIR.replace("relay = true", 'delay = "40ms"'))
    with datagrams(made, "alpha") as alpha, datagrams(made, "beta") as beta:
        send(alpha, made.ipv4("beta"), 1)  # from here on the neighbour is resolved
        assert collect(beta, 1) == [0]
        waiting = []
        for number in range(20):
            send(alpha, made.ipv4("beta"), 1, first=number)
            waiting.append(made.link("alpha", "beta").look().counters["forward"].waiting)
        assert collect(beta, 20) == list(range(20))
    assert max(waiting) > 0


def test_the_relay_sees_frames_as_a_wire_carries_them(
    lab: StartLab, require: Callable[[object, str], None]
) -> None:
    made = lab(PAIR)
    with datagrams(made, "alpha") as alpha, datagrams(made, "beta") as beta:
        send(alpha, made.ipv4("beta"), 1)  # from here on the neighbour is resolved
        assert collect(beta, 1) == [0]
        before, _ = made.link("alpha", "beta").settled()
        alpha.setsockopt(17, 103, 1000)  # UDP_SEGMENT: one call, 20 datagrams
        try:
            alpha.sendto(bytes(20_000), (made.ipv4("beta"), 5000))
        except OSError:
            require(False, "this kernel has no UDP_SEGMENT where checksums are not offloaded")
        assert len(collect(beta, 20)) == 20
        after, _ = made.link("alpha", "beta").settled()
    assert after.received - before.received >= 20
    assert (after.received_bytes - before.received_bytes) / (after.received - before.received) <= 1042


def test_bad_requests_change_nothing(lab: StartLab) -> None:
    made = lab(PAIR)
    link = made.link("alpha", "beta")
    for settings in ({"loss": 2.0}, {"los": 0.1}, {"delay": -1.0}):
        with pytest.raises(RelayError):
            link.change(**settings)
    assert reaches(made, "alpha", "beta")
    with pytest.raises(LabError, match="no relayed link is described between beta and alpha"):
        made.link("beta", "alpha")
