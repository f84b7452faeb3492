"""Listeners whose address leaves the machine are told; what listens elsewhere is not."""

from __future__ import annotations

import logging

import pytest

from treecast.middleware.daemon import listener_addresses
from treecast.middleware.daemon.listener_addresses import ListenerAddresses


def test_addresses_that_are_gone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    faces = {
        "kafka": "10.0.0.3:9092",
        "control": "10.0.0.3:7671",
        "mqtt": "0.0.0.0:1883",
        "admin": "localhost:7670",
        "fabric": "10.0.0.3:7672",
    }
    here = {"10.0.0.3", "0.0.0.0"}
    real = listener_addresses.is_here
    monkeypatch.setattr(
        listener_addresses, "is_here", lambda host: real(host) if host.isalpha() else host in here
    )
    watch = ListenerAddresses(lambda: faces)
    with caplog.at_level(logging.INFO):
        watch.look()
        assert watch.problems == ()
        here.remove("10.0.0.3")
        for _ in range(2):
            watch.look()
        (problem,) = watch.problems
        assert "no interface of this host has 10.0.0.3, where --kafka, --control listen" in problem
        assert watch.is_gone("10.0.0.3:9092")
        assert not watch.is_gone("0.0.0.0:1883")
        here.add("10.0.0.3")
        watch.look()
    assert watch.problems == ()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
