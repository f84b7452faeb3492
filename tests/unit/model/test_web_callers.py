"""Which names are this host's, and which web pages may change something."""

from __future__ import annotations

import pytest

from treecast.middleware.model.web_callers import WebCallers, host_of, is_own_name

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


@pytest.mark.parametrize(
    ("host", "origin", "site", "admitted"),
    [
        ("localhost:7670", "", "", True),  # no browser
        ("localhost:7670", "http://localhost:7670", "", True),
        ("localhost:7670", "http://localhost:7670", "same-origin", True),
        ("LocalHost:7670", "http://localhost:7670", "", True),
        ("localhost:7670", "", "none", True),  # typed in
        ("localhost:7670", "https://evil.example", "", False),
        ("localhost:7670", "https://evil.example", "cross-site", False),
        ("localhost:7670", "", "cross-site", False),
        ("localhost:7670", "http://localhost:3000", "same-site", False),  # a page of another local program
        ("localhost:7670", "http://localhost:3000", "", False),
        ("localhost:7670", "http://localhost", "", False),
        ("localhost:7670", "null", "", False),
        ("localhost:7670", "null", "cross-site", False),
        ("inner:7670", "https://shop.example", "same-origin", True),  # a proxy has replaced the name
        ("shop.example", "https://shop.example", "", True),  # a proxy has ended TLS
        ("shop.example:443", "https://shop.example", "", True),
        ("shop.example", "https://shop.example:443", "", True),
        ("shop.example", "http://shop.example:8080", "", False),
        ("[::1]:1883", "http://[::1]:1883", "", True),
        ("[::1]:1883", "http://[::1]", "", False),
        ("10.0.0.1:1883", "https://10.0.0.1:1883", "", True),  # paho-mqtt guesses the scheme
        ("localhost:1883", "https://dash.example", "cross-site", True),
        ("localhost:1883", "https://dash.example:8443", "", False),
        ("localhost:1883", "HTTPS://Dash.example", "", True),
    ],
)
def test_who_may_change_something(host: str, origin: str, site: str, admitted: bool) -> None:
    callers = WebCallers(origins=("https://dash.example/",))
    assert callers.admits(host, origin, site) is admitted


def test_a_star_stands_for_all() -> None:
    assert WebCallers(origins=("*",)).admits("localhost", "https://evil.example", "cross-site")
    assert WebCallers(names=("*",)).knows("evil.example", "127.0.0.1")
    assert not WebCallers().knows("evil.example", "127.0.0.1")
    assert not WebCallers(origins=("null",)).admits("localhost", "https://evil.example", "")
    assert WebCallers(origins=("null",)).admits("localhost", "null", "cross-site")
