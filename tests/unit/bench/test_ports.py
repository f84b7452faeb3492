"""Ports for servers that have to be told one."""

import socket

import pytest
from bench.core import ports


def test_a_port_is_below_those_that_the_kernel_picks_and_given_once():
    found = [ports.free_port() for _ in range(50)]
    assert len(set(found)) == 50
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        assert max(found) < one.getsockname()[1]
    for port in found:
        assert not ports._claimed(port), "another caller would get it too"


def test_a_port_in_use_is_passed_over(monkeypatch):
    with socket.socket() as one:
        one.bind(("127.0.0.1", ports.free_port()))
        taken = one.getsockname()[1]
        assert not ports._unused(taken)
        monkeypatch.setattr(ports, "_claimed", lambda _: True)
        monkeypatch.setattr(ports.random.SystemRandom, "randrange", lambda *_: taken)
        with pytest.raises(OSError, match="none of the ports"):
            ports.free_port()
