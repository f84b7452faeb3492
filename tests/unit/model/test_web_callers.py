"""The admin address answers to these host names only."""

from __future__ import annotations

import pytest

from treecast.middleware.model.web_callers import host_of, is_own_name

NAMES = {"shop-1", "metrics.example.org"}


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost:7670", "localhost"),
        ("shop-1.:7670", "shop-1"),
        ("10.0.0.1:7670", "10.0.0.1"),
        ("[::1]:7670", "::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("", ""),
    ],
)
def test_the_port_is_left_away(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("header", "reached", "own"),
    [
        ("localhost:7670", "127.0.0.1", True),
        ("a.localhost", "127.0.0.1", True),
        ("127.0.0.1:7670", "127.0.0.1", True),
        ("127.8.8.8", "127.0.0.1", True),
        ("[::1]:1", "::1", True),
        ("10.0.0.1:7670", "10.0.0.1", True),
        ("10.0.0.1:7670", "::ffff:10.0.0.1", True),
        ("[fe80::1]:7670", "fe80::1%eth0", True),
        ("shop-1:7670", "10.0.0.1", True),
        ("metrics.example.org", "10.0.0.1", True),
        ("10.0.0.2:7670", "10.0.0.1", False),
        ("evil.example", "127.0.0.1", False),
        ("shop-1.evil.example", "10.0.0.1", False),
        ("localhost.evil.example", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        ("[", "127.0.0.1", False),
        ("\x00é", "127.0.0.1", False),
    ],
)
def test_a_name_is_this_hosts_or_not(header: str, reached: str, own: bool) -> None:
    assert is_own_name(header, reached, NAMES) is own
