"""Management calls over several hosts in memory: whose answers are put together, and with which rights."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from typing import Any

import pytest
from tests.unit.amqp.management_site import Site

from treecast.middleware.broker.queues.reach import Managed
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.shims.amqp.cluster_management import SPREAD, ClusterManagement, added
from treecast.shims.amqp.management import CALLS
from treecast.shims.amqp.management_call import Request
from treecast.shims.amqp.users import User, Users, hashed

NAMES = {1: "a", 2: "b", 3: "c"}


class Others:
    """The other hosts of one host. Host 3 is known, and never reachable."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.far: dict[int, ClusterManagement] = {}
        self.silent = False

    def hosts(self) -> Collection[int]:
        return [host for host in NAMES if host != self.number]

    def up(self) -> Collection[int]:
        return list(self.far)

    def name(self, host: int) -> str:
        return NAMES[host]

    async def manage(self, host: int, request: bytes) -> bytes:
        if self.silent:
            raise TreecastError(Fault.TIMED_OUT, "no answer")
        return await self.far[host].serve(self.number, request)

    def serve(self, managed: Managed) -> None: ...


class Cluster:
    def __init__(self) -> None:
        self.sites = [Site(), Site()]
        self.others = [Others(1), Others(2)]
        self.settled = True
        self.calls = [
            ClusterManagement(site.management, others, lambda: 0.0, lambda: None, self._settled)
            for site, others in zip(self.sites, self.others, strict=True)
        ]
        self.others[0].far[2] = self.calls[1]
        self.others[1].far[1] = self.calls[0]

    async def _settled(self) -> bool:
        return self.settled

    async def call(self, method: str, path: str, user: str = "guest", body: bytes = b"") -> tuple[int, Any]:
        """Calls the first host. Returns (status, JSON)."""
        given = base64.b64encode(f"{user}:{user}".encode()).decode()
        request = Request(method, f"/api/{path}", {}, f"Basic {given}", "", body)
        found = await self.calls[0].answer(request)
        return found.status, json.loads(found.body) if found.body else None


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


class FileUsers(Users):
    """Users of whom one, `ann`, is in a password file."""

    def __init__(self, of: Users) -> None:
        super().__init__()
        self.users, self.permissions, self.topics = of.users, of.permissions, of.topics

    def may_open(self, user: str, vhost: str) -> bool:
        return user == "ann" or super().may_open(user, vhost)

    def everything(self, name: str) -> bool:
        return name == "ann"

    def tags(self, name: str) -> frozenset[str]:
        return frozenset({"administrator"}) if name == "ann" else super().tags(name)


def ann(site: Site) -> None:
    site.users.put(User("ann", hashed(b"ann", b"1234"), tags=("management",)))


async def test_a_user_of_another_hosts_password_file_may_do_everything(cluster: Cluster) -> None:
    first, second = cluster.sites
    ann(first)
    first.management.users = FileUsers(first.users)
    second.client(1)
    status, found = await cluster.call("GET", "connections", "ann")
    assert (status, [row["user"] for row in found]) == (200, ["guest"])


async def test_a_password_file_gives_no_rights_to_another_hosts_user_of_that_name(cluster: Cluster) -> None:
    second = cluster.sites[1]
    for site in cluster.sites:
        ann(site)
    second.management.users = FileUsers(second.users)
    second.client(1)
    assert await cluster.call("GET", "connections", "ann") == (200, [])


async def test_hosts_that_do_not_answer_are_left_out(cluster: Cluster) -> None:
    cluster.sites[1].client(1)
    status, found = await cluster.call("GET", "nodes")
    assert status == 200
    assert [row["running"] for row in found] == [
        True,
        True,
        False,
        False,
    ]  # both sites call themselves `here`
    assert (await cluster.call("GET", "overview"))[1]["object_totals"]["connections"] == 1
    cluster.others[0].silent = True
    assert await cluster.call("GET", "connections") == (200, [])
    assert (await cluster.call("GET", "nodes/treecast@c"))[1] == {
        "name": "treecast@c",
        "type": "disc",
        "running": False,
    }
    assert (await cluster.call("GET", "nodes/treecast@d"))[0] == 404


async def test_what_is_not_stored_is_refused(cluster: Cluster) -> None:
    cluster.settled = False
    assert (await cluster.call("PUT", "queues/%2F/q", body=b"{}"))[0] == 503
    assert (await cluster.call("GET", "queues/%2F"))[0] == 200


async def test_a_request_that_cannot_be_read_is_refused(cluster: Cluster) -> None:
    answer = await cluster.calls[0].serve(2, b"\x93\x01")
    assert b"bad_request" in answer


def test_the_table_names_calls() -> None:
    assert set(SPREAD) <= {name for _, _, name in CALLS}


def test_numbers_are_added_wherever_they_are() -> None:
    one = {"a": 1, "rate": {"x": 0.5}, "name": "n", "flag": True, "only": 3}
    assert added(one, {"a": 2, "rate": {"x": 1}, "name": "m", "flag": True}) == {
        "a": 3,
        "rate": {"x": 1.5},
        "name": "n",
        "flag": True,
        "only": 3,
    }
