"""Members of a secured cluster at a real door: renewals, and what becomes of a refusal."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.daemon.test_door import Place, until

from treecast.middleware.api import trust_member
from treecast.middleware.api.trust import own_identity
from treecast.middleware.api.trust_files import is_secured
from treecast.middleware.api.trust_member import Member
from treecast.middleware.control.membership import add_arguments, certified
from treecast.middleware.control.trust import authority


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


def words(place: Place, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(["--data", str(place.cluster.folder / "trees"), *more])


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each certificate is to be renewed at once."""
    monkeypatch.setattr(trust_member, "RENEW_SECONDS", 400 * 86_400.0)
    monkeypatch.setattr(authority, "RENEWED_FROM", 400 * 86_400.0)


async def test_a_controller_renews_where_it_has_joined(place: Place, due: None) -> None:
    """Also when it is started without the address."""
    data = place.cluster.folder / "trees"
    token = place.cluster.authority.create_token(60.0).token
    where = f"127.0.0.1:{place.port}"
    async with certified(words(place, "--join", where, "--name", "trees", "--join-token", token)):
        assert is_secured(data)
    joined = own_identity(data).serial
    async with certified(words(place)):
        await until(lambda: own_identity(data).serial != joined)


async def test_a_member_without_an_address_says_so(place: Place, due: None) -> None:
    member = Member(place.second, [])
    for target, said in (("", "start with --join HOST:PORT"), ("nowhere", "'nowhere' is no address")):
        await member.open(target, follows=False)
        await until(lambda said=said: said in member.not_renewed)
        await member.close()


async def test_a_refusal_is_over_when_the_authority_answers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a clock was mended: it has nothing new to tell."""
    monkeypatch.setattr(authority, "ALIVE_SECONDS", 0.01)
    place.second.trouble = "the authority refuses this host"
    generation = place.second.keys.generation
    member = Member(place.second, [])
    await member.open(f"127.0.0.1:{place.port}")
    try:
        await until(lambda: not place.second.trouble)
        assert place.second.keys.generation == generation
    finally:
        await member.close()
