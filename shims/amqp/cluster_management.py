"""The management calls on joined hosts: any host answers for the whole cluster, as a RabbitMQ cluster does.

Definitions are known to every host. What only one host knows is asked of it, under the name of the user who
called, and the answers are put together by `SPREAD`:

| how     | answer                                                                               |
| ------- | ------------------------------------------------------------------------------------ |
| HOME    | of the queue's home                                                                  |
| NODE    | of the host named in the body, if it names one                                       |
| ROWS    | the rows of all hosts                                                                |
| FOUND   | of the first host that knows the object                                              |
| SUMS    | of this host, with the numbers of all hosts                                          |
| ANY     | of the first host that fails                                                         |
| EVERY   | of this host, once all hosts have done it                                            |

All other calls are answered here. A host that does not answer is left out of lists and sums: its node is
shown as not running, its queues as down. Purging, deleting or getting from a queue whose home does not answer
fails with 404.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from treecast.middleware.broker.queues import OtherHosts
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.rights import Rights
from treecast.shims.log_ins import LogIns

from .management import FAILURES, Management, failed, shown
from .management_call import Call, Problem, Request, Response, bad_request, claimed, entitled
from .management_definitions import Document, Rows
from .management_views import node_name
from .users import Users

HOME, NODE, ROWS, FOUND, SUMS, ANY, EVERY = "home", "node", "rows", "found", "sums", "any", "every"
SPREAD: Final[Mapping[str, str]] = {
    "queues.one": HOME,
    "queues.delete": HOME,
    "queues.purge": HOME,
    "messages.get": HOME,
    "queues.put": NODE,
    "queues.every": ROWS,
    "connections.consumers": ROWS,
    "connections.every": ROWS,
    "connections.of_user": ROWS,
    "connections.close_of_user": EVERY,
    "health.certificate_expiration": ANY,
    "connections.channels": ROWS,
    "cluster.nodes": ROWS,
    "cluster.node": FOUND,
    "connections.one": FOUND,
    "connections.close": FOUND,
    "connections.channels_of": FOUND,
    "connections.channel": FOUND,
    "cluster.overview": SUMS,
    "vhosts.every": SUMS,
    "vhosts.one": SUMS,
    "health.alarms": ANY,
}
_SUMMED: Final = ("message_stats", "queue_totals", "churn_rates")  # parts of the overview
_OBJECTS: Final = ("connections", "channels", "consumers")  # others are the same on all hosts
_MESSAGES: Final = ("messages", "messages_ready", "messages_unacknowledged")


class FarRequest(Struct, frozen=True, array_like=True):
    """A request that another host has authenticated. `everything`: its user is permitted everything there."""

    user: str
    tags: list[str]
    everything: bool
    method: str
    path: str
    query: dict[str, str]
    reason: str
    body: bytes


class FarResponse(Struct, frozen=True, array_like=True):
    status: int
    body: bytes
    headers: list[tuple[str, str]]


class _Everything:
    """The rights of a user of another host's password file."""

    version = 0

    def __init__(self, tags: frozenset[str]) -> None:
        self._tags = tags

    def tags(self, name: str) -> frozenset[str]:
        return self._tags

    def may_open(self, user: str, vhost: str) -> bool:
        return True

    def may(self, user: str, vhost: str, permission: str, name: bytes) -> bool:
        return True

    def may_use_topic(self, user: str, vhost: str, permission: str, exchange: bytes, key: bytes) -> bool:
        return True


class _Shared:
    """The rights of a user that all hosts share, also if this host's password file has one of that name."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self.version = users.version

    def tags(self, name: str) -> frozenset[str]:
        return Users.tags(self._users, name)

    def may_open(self, user: str, vhost: str) -> bool:
        return Users.may_open(self._users, user, vhost)

    def may(self, user: str, vhost: str, permission: str, name: bytes) -> bool:
        return Users.may(self._users, user, vhost, permission, name)

    def may_use_topic(self, user: str, vhost: str, permission: str, exchange: bytes, key: bytes) -> bool:
        return Users.may_use_topic(self._users, user, vhost, permission, exchange, key)


class ClusterManagement:
    """Answers for all hosts.

    `acted` is called after each call so that resulting deliveries are written. `settled` waits until all
    changes so far are stored, and known to other hosts, and returns whether they are stored.
    """

    def __init__(
        self,
        management: Management,
        others: OtherHosts | None,
        clock: Callable[[], float],
        acted: Callable[[], None],
        settled: Callable[[], Awaitable[bool]],
        log_ins: LogIns | None = None,
    ) -> None:
        self._management = management
        self._others = others
        self._clock = clock
        self._acted = acted
        self._settled = settled
        self._log_ins = log_ins if log_ins is not None else LogIns()

    async def authenticated(self, request: Request) -> str:
        """Returns the user of a request, whose body need not be there yet. Raises Problem."""
        users = self._management.users
        name, password = claimed(request)
        outcome = await self._log_ins.checked(request.address, name, password, users.secret(name))
        return entitled(request, users, name, outcome)

    async def answer(self, request: Request, user: str = "") -> Response:
        """Answers a request of a client. `user`: it is authenticated."""
        management = self._management
        try:
            user = user or await self.authenticated(request)
            call = management.begin(request, self._clock(), user, management.users)
            spread = SPREAD.get(call.method, "")
            if self._others is None or not spread:
                found = self._run(call)
            else:
                found = await self._spread(call, spread, self._others)
            return await self._finished(shown(call, found))
        except FAILURES as error:
            return failed(request, error)

    def _run(self, call: Call) -> object:
        try:
            return self._management.run(call)
        finally:
            self._acted()

    async def _finished(self, response: Response) -> Response:
        if response.depends and not await self._settled():
            raise Problem(503, "service_unavailable", "the disk refuses")
        return response

    async def serve(self, host: int, body: bytes) -> bytes:
        """Answers a request of another host with what this one knows."""
        management = self._management
        try:
            far = msgspec.msgpack.decode(body, type=FarRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _encoded(bad_request(f"host {host}: {error}").response())
        request = Request(far.method, far.path, far.query, "", far.reason, far.body, far=True)
        rights: Rights = _Everything(frozenset(far.tags)) if far.everything else _Shared(management.users)
        try:
            call = management.begin(request, self._clock(), far.user, rights)
            return _encoded(await self._finished(shown(call, self._run(call))))
        except FAILURES as error:
            return _encoded(failed(request, error))

    # --- the ways to put answers together

    async def _spread(self, call: Call, spread: str, others: OtherHosts) -> object:
        if spread == HOME:
            return await self._at_home(call, others)
        if spread == NODE:
            return await self._at_node(call, others)
        if spread == FOUND:
            return await self._found(call, others)
        found = self._run(call)
        if spread == EVERY:
            await self._all(call, others)
        if isinstance(found, Response):
            return found
        if spread == ANY:
            return await self._any(call, found, others)
        rest = [json.loads(one.body) for one in await self._all(call, others) if one.status == 200]
        if spread == ROWS:
            assert isinstance(found, list)
            return self._rows(call, found, [row for rows in rest for row in rows], others)
        if isinstance(found, list):
            return [_with(row, [one for rows in rest for one in rows if _same(row, one)]) for row in found]
        assert isinstance(found, dict)
        return _with(found, rest)

    async def _at_home(self, call: Call, others: OtherHosts) -> object:
        queue = call.queue(call.vhost())
        if not queue.home:
            found = self._run(call)
        else:
            found = _response(await self._ask(call, queue.home, others), queue.home, others)
        if call.method == "queues.one":
            document = found if isinstance(found, dict) else _document(found)
            if document is not None:
                document["consumer_details"] = await self._consumers_of(call, others)
                return document
        return found

    async def _consumers_of(self, call: Call, others: OtherHosts) -> Rows:
        path = f"/api/consumers/{call.request.path.strip('/').split('/')[2]}"
        request = Request("GET", path, local=call.request.local)
        management = self._management
        asked = management.begin(request, call.now, call.user, management.users)
        rows = management.connections.consumers(asked)
        for one in await self._all(asked, others):
            rows += json.loads(one.body) if one.status == 200 else []
        name = call.arguments["queue"]
        return [row for row in rows if _at(row, "queue", "name") == name]

    async def _at_node(self, call: Call, others: OtherHosts) -> object:
        node = call.body().get("node")
        for host in others.hosts():
            if node == node_name(others.name(host)):
                return _response(await self._ask(call, host, others), host, others)
        return self._run(call)

    async def _found(self, call: Call, others: OtherHosts) -> object:
        try:
            return self._run(call)
        except Problem as problem:
            if problem.status != 404:
                raise
            for one in await self._all(call, others):
                if one.status != 404:
                    return Response(one.status, one.body, tuple(one.headers))
            for host in others.hosts() if call.method == "cluster.node" else ():
                if call.arguments["node"] == node_name(others.name(host)):
                    return _stopped(others.name(host))
            raise

    async def _any(self, call: Call, found: object, others: OtherHosts) -> object:
        for one in await self._all(call, others):
            if one.status == 503:
                return Response(one.status, one.body)
        return found

    def _rows(self, call: Call, own: Rows, rest: Rows, others: OtherHosts) -> Rows:
        if call.method == "queues.every":
            return _queues(own, rest)
        if call.method == "cluster.nodes":
            known = {row["name"] for row in rest}
            names = [others.name(host) for host in others.hosts()]
            rest += [_stopped(name) for name in names if node_name(name) not in known]
        return own + rest

    # --- asking

    async def _all(self, call: Call, others: OtherHosts) -> list[FarResponse]:
        """Returns the answers of all other hosts that give one."""
        found = await asyncio.gather(*[self._ask(call, host, others) for host in list(others.up())])
        return [one for one in found if one is not None]

    async def _ask(self, call: Call, host: int, others: OtherHosts) -> FarResponse | None:
        request, users = call.request, self._management.users
        far = FarRequest(
            call.user,
            sorted(users.tags(call.user)),
            users.everything(call.user),
            request.method,
            request.path,
            {} if SPREAD.get(call.method) == ROWS else dict(request.query),
            request.reason,
            request.body,
        )
        try:
            answer = await others.manage(host, msgspec.msgpack.encode(far))
            return msgspec.msgpack.decode(answer, type=FarResponse)
        except (TreecastError, msgspec.DecodeError, UnicodeDecodeError):
            return None


def _encoded(response: Response) -> bytes:
    return msgspec.msgpack.encode(FarResponse(response.status, response.body, list(response.headers)))


def _response(found: FarResponse | None, host: int, others: OtherHosts) -> Response:
    """Returns the answer of a home, or refuses as a queue does whose home cannot be reached."""
    if found is None:
        where = others.name(host)
        raise Problem(404, "not_found", f"home node '{where}' is down or inaccessible")
    return Response(found.status, found.body, tuple(found.headers))


def _document(found: object) -> Document | None:
    """Returns the content of a response that is a document."""
    if isinstance(found, Response) and found.status == 200:
        document: Document = json.loads(found.body)
        return document
    return None


def _stopped(host: str) -> Document:
    """Returns the row of a node that does not answer."""
    return {"name": node_name(host), "type": "disc", "running": False}


def _queues(own: Rows, rest: Rows) -> Rows:
    """Puts the rows of homes in place of those that this host has of their queues."""
    homes = {(row["vhost"], row["name"]): row for row in rest}
    found = [homes.pop((row["vhost"], row["name"]), row) for row in own]
    return found + list(homes.values())


def _same(one: Document, other: Document) -> bool:
    return one["name"] == other["name"]


def _at(row: Document, first: str, second: str) -> object:
    inner = row.get(first)
    return inner.get(second) if isinstance(inner, dict) else None


def _with(own: Document, rest: Rows) -> Document:
    """Adds the numbers of other hosts to an overview, or to a virtual host."""
    found = dict(own)
    for one in rest:
        for part in (*_SUMMED, *_MESSAGES, *[f"{name}_details" for name in _MESSAGES]):
            if part in found:
                found[part] = added(found[part], one.get(part))
        if isinstance(objects := found.get("object_totals"), dict):
            more = {name: _at(one, "object_totals", name) for name in _OBJECTS}
            found["object_totals"] = {**objects, **_dict(added({n: objects[n] for n in _OBJECTS}, more))}
        if isinstance(listeners := found.get("listeners"), list):
            others = one.get("listeners")
            found["listeners"] = listeners + (others if isinstance(others, list) else [])
        if isinstance(state := found.get("cluster_state"), dict):
            found["cluster_state"] = {**state, **_dict(one.get("cluster_state"))}
    return found


def _dict(value: object) -> Document:
    return value if isinstance(value, dict) else {}


def added(one: object, other: object) -> object:
    """Adds numbers, also those in dictionaries."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: added(value, other.get(key)) for key, value in one.items()}
    if isinstance(one, bool):
        return one
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one + other
    return one
