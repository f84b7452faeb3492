"""The table of clients and log-ins: its judge, and a short form of the command."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.clients.security_table.__main__ import run, table, wrong
from tests.clients.security_table.case import KINDS, WORKS

pytestmark = pytest.mark.clients

AS_IT_SHOULD_BE = {kind: WORKS if one.fine else "an error" for kind, one in KINDS.items()}


def test_what_is_wrong() -> None:
    assert wrong({"a": AS_IT_SHOULD_BE}) == []
    assert wrong({"a": {**AS_IT_SHOULD_BE, "token": ""}}) == []
    assert wrong({"a": {**AS_IT_SHOULD_BE, "password": "no"}}) == ["a, password: no"]
    assert wrong({"a": {**AS_IT_SHOULD_BE, "expired": WORKS}}) == ["a, expired: works"]


def test_the_table() -> None:
    lines = table({"a": {**AS_IT_SHOULD_BE, "token": ""}}, {"a": "1.0"}).splitlines()
    assert lines[2] == "| a 1.0 | works | works | - |"
    assert lines[6] == "| a 1.0 |" + " an error |" * 5


@pytest.mark.parametrize(
    "client", ["paho", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("pika", "librdkafka"))]
)
def test_a_client(client: str, require_tool: Callable[[str], str]) -> None:
    pytest.importorskip("jwt", reason="PyJWT comes with the extras `oauth` and `test`")
    told = run([client], require_tool("openssl"))
    assert wrong(told) == []
    for kind, text in told[client].items():
        assert text not in ("no end", "goes on", "it has ended without a word"), kind
