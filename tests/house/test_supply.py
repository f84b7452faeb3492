"""Licences of what runs with a daemon are listed, and nothing is older than the mends that are known."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version
from tests.house import supply

PAGE = (supply.REPOSITORY / "docs/dependencies.md").read_text(encoding="utf-8")
COPYLEFT = ("GPL", "MPL", "EPL", "CDDL")


def listed() -> dict[str, str]:
    """The licences of the page, by package."""
    rows = [line.split("|") for line in PAGE.partition(supply.BEGIN)[2].splitlines() if line.startswith("| ")]
    return {row[1].strip(): row[2].strip() for row in rows[2:]}


def test_every_package_stands_in_the_table_with_its_licence() -> None:
    """The words of a licence may change with a version; a package without one may not be added."""
    found = listed()
    assert [name for name in supply.closure() if not found.get(name)] == []
    assert "unknown" not in found.values()


def test_licences_that_ask_for_more_are_spoken_of() -> None:
    told = PAGE.partition(supply.BEGIN)[0]
    asking = [name for name in supply.closure() if any(one in supply.licence(name) for one in COPYLEFT)]
    assert asking == ["crc32c"]
    assert all(name in told for name in asking)


@pytest.mark.parametrize("advisory", supply.advisories(), ids=lambda one: f"{one['package']}-{one['id']}")
def test_nothing_is_older_than_a_mend(advisory: dict[str, Any]) -> None:
    fixed = Version(advisory["fixed"])
    installed = supply.closure()
    assert Version(installed[advisory["package"]]) >= fixed
    for one in supply.declared():
        if canonicalize_name(one.name) == advisory["package"]:
            lowest = [part.version for part in one.specifier if part.operator in (">=", "==")]
            assert Version(lowest[0]) >= fixed
