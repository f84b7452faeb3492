"""`treecast filter check` prints how it reads a filter, or points at the error."""

from __future__ import annotations

import json

import pytest

from treecast.middleware.cli.app import run


def test_says_how_it_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["filter", "check", "stock = GOOGL && price > 50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "filter": 'stock == "GOOGL" and price > 50',
        "fields": ["stock", "price"],
        "constraints": 2,
        "stateless": True,
    }


def test_table_names_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["filter", "check", "avg(price) > 50"]) == 0
    assert "last hop" in capsys.readouterr().out


def test_points_at_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["filter", "check", "price >"]) == 1
    assert capsys.readouterr().err.endswith("  price >\n         ^\n")
