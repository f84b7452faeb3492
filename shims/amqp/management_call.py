"""One management call: request, response, authentication and authorisation.

Errors have RabbitMQ's form and texts: `{"error": ..., "reason": ...}`. Rights depend on the user's tags
(administrator, monitoring, policymaker, management) and on its permissions in a virtual host.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from treecast.middleware.broker.access import RabbitRights, missing
from treecast.middleware.broker.queues import LONGEST_NAME, AnyQueue, VirtualHost
from treecast.middleware.model.principal import Principal
from treecast.middleware.model.regex import Regex, too_long
from treecast.middleware.model.regex_syntax import Dialect, InvalidRegex
from treecast.middleware.model.rights import Need, Rights, named
from treecast.shims.log_ins import Outcome

from .session_host import AmqpHost
from .users import ADMINISTRATOR, Users

MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
_TAGS: Final = frozenset({ADMINISTRATOR, MONITORING, POLICYMAKER, "management"})
_SEES_ALL: Final = frozenset({ADMINISTRATOR, MONITORING})
_WORK: Final = 100_000  # visited states of one listing; takes some 25 milliseconds
_WORK_PER_NAME: Final = 100
_LARGEST_PAGE: Final = 500
_PAGE: Final = 100  # items
_INTEGERS: Final = 1 << 63
_DEPTH: Final = 64  # of objects and lists in each other; AMQP's tables nest no deeper


class Request(Struct, frozen=True):
    """A management request.

    `path` is as sent, still percent-encoded. `reason` is the header X-Reason. `local` is whether the request
    comes from this host.
    """

    method: str
    path: str
    query: Mapping[str, str] = {}
    authorization: str = ""
    reason: str = ""
    body: bytes = b""
    local: bool = True
    address: str = ""  # of the caller, as the limits on log-ins count it
    far: bool = False  # another host asks, for what only this host knows


class Response(Struct, frozen=True):
    """A management response. `depends` is whether it must not be sent before all changes are stored."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    depends: bool = False


CREATED: Final = Response(201, depends=True)
CHANGED: Final = Response(204, depends=True)


def put_response(new: bool) -> Response:
    """Returns the response to a PUT that made an object, or changed one."""
    return CREATED if new else CHANGED


class Problem(Exception):
    """The failure of a call: HTTP status, error and reason."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason

    def response(self) -> Response:
        body = json.dumps({"error": self.error, "reason": self.reason}).encode()
        realm = (("WWW-Authenticate", 'Basic realm="Treecast Management"'),)
        return Response(self.status, body, realm if self.error == "not_authorized" else ())


def not_found() -> Problem:
    return Problem(404, "Object Not Found", "Not Found")


def bad_request(reason: str) -> Problem:
    return Problem(400, "bad_request", reason)


def not_authorised(reason: str) -> Problem:
    return Problem(401, "not_authorised", reason)


def claimed(request: Request) -> tuple[str, bytes]:
    """Returns the user and the password that a request gives. Raises Problem."""
    scheme, _, given = request.authorization.partition(" ")
    try:
        decoded = base64.b64decode(given.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        decoded = ""
    name, colon, password = decoded.partition(":")
    if scheme.lower() != "basic" or not colon:
        raise Problem(401, "not_authorized", "Login failed")
    return name, password.encode()


def entitled(request: Request, users: Users, name: str, outcome: Outcome) -> str:
    """Returns the user of a request, whose password was checked. Raises Problem if it may not call."""
    if outcome is Outcome.BUSY:
        raise Problem(429, "too_many_requests", "too many log-ins wait: try again")
    if outcome is not Outcome.FITS:
        raise Problem(401, "not_authorized", "Login failed")
    if not users.may_come(name, request.local):
        raise not_authorised("User can only log in via localhost")
    if not users.tags(name) & _TAGS:
        raise not_authorised("Not management user")
    return name


def authenticate(request: Request, users: Users) -> str:
    """Returns the authenticated user, checked at once on the caller's thread. Raises Problem."""
    name, password = claimed(request)
    fits = users.secret(name).fits(password)
    return entitled(request, users, name, Outcome.FITS if fits else Outcome.WRONG)


class Scope(Struct, frozen=True):
    """The view of a user: virtual hosts, and in these its own connections, or with `user` None all."""

    vhosts: list[str]
    user: str | None


class Call:
    """A request of an authenticated user. `arguments` holds the path parameters by name, `method` what
    answers it, as in the table of `management`."""

    method = ""

    def __init__(self, host: AmqpHost, users: Rights, user: str, request: Request, now: float) -> None:
        self.user = user
        self.principal = Principal(user)
        self.request = request
        self.now = now
        self.arguments: dict[str, str] = {}
        self._host = host
        self._users = users
        self._authorizer = RabbitRights(users)
        self._tags = users.tags(user)

    # --- authorisation

    def need(self, tag: str) -> None:
        """Raises Problem if the user has neither the tag nor the administrator tag."""
        higher = {ADMINISTRATOR, tag}
        if not self._tags & higher:
            words = {ADMINISTRATOR: "administrator", MONITORING: "monitor"}.get(tag, tag)
            raise not_authorised(f"Not {words} user")

    @property
    def sees_all(self) -> bool:
        return bool(self._tags & _SEES_ALL)

    def visible(self) -> list[str]:
        """Returns the names of the virtual hosts that the user may see."""
        may_open = self._users.may_open
        return [name for name in self._host.vhosts if self.sees_all or may_open(self.user, name)]

    def scope(self) -> Scope:
        """Returns what the user may see of what the path names."""
        vhosts = [self.vhost().name] if "vhost" in self.arguments else self.visible()
        return Scope(vhosts, None if self.sees_all else self.user)

    def vhosts(self) -> list[VirtualHost]:
        """Returns the virtual host of the path, or all that the user may see if the path has none."""
        if "vhost" in self.arguments:
            return [self.vhost()]
        return [self._host.vhosts[name] for name in self.visible()]

    def vhost(self, *, used: bool = False) -> VirtualHost:
        """Returns the virtual host of the path. Raises Problem if there is none or the user may not see it.

        With `used`, the user needs permissions in it; otherwise a tag that sees all is enough.
        """
        name = self.arguments["vhost"]
        found = self._host.vhosts.get(name)
        if found is None:
            raise not_found()
        permitted = self._users.may_open(self.user, name)
        if not permitted and (used or not self.sees_all):
            raise not_authorised("User not authorised to access virtual host")
        return found

    def permit(self, vhost: VirtualHost, needs: Iterable[Need]) -> None:
        """Raises Problem if the user lacks a right that an operation needs."""
        found = missing(self._authorizer, self.principal, vhost.name, needs)
        if found is not None:
            raise not_authorised(
                f"ACCESS_REFUSED - {found.right} access to {named(found)} in vhost '{vhost.name}' refused for"
                f" user '{self.user}'"
            )

    def has(self, tag: str) -> bool:
        return tag in self._tags

    # --- path parameters

    @property
    def properties_keys(self) -> tuple[str, str]:
        """The possible keys of the binding in the path, since some clients percent-encode it twice."""
        found = self.arguments["properties"]
        return found, quote(found, safe=".~")

    def named(self, what: str, name: str) -> None:
        """Raises Problem for a name that no AMQP client could give or be told."""
        if len(name.encode(errors="replace")) > LONGEST_NAME:
            raise bad_request(f"{what} is longer than {LONGEST_NAME} bytes")

    def name(self, argument: str) -> bytes:
        return self.arguments[argument].encode()

    def exchange_name(self, argument: str = "exchange") -> bytes:
        """Returns the exchange name of the path. `amq.default` stands for the exchange without a name."""
        found = self.arguments[argument]
        return b"" if found == "amq.default" else found.encode()

    def queue(self, vhost: VirtualHost) -> AnyQueue:
        found = vhost.queues.get(self.name("queue"))
        if found is None:
            raise not_found()
        return found

    def named_row(self, rows: list[dict[str, object]]) -> dict[str, object]:
        """Returns the row with the name in the path. Raises Problem if there is none."""
        for row in rows:
            if row["name"] == self.arguments["name"]:
                return row
        raise not_found()

    # --- body and query

    def body(self, *required: str) -> dict[str, object]:
        """Returns the JSON object in the body, {} for none. Raises Problem if a required key is missing."""
        raw = self.request.body.strip()
        found = _json(raw) if raw else {}
        if not isinstance(found, dict):
            raise bad_request("not_json")
        missing = [name for name in required if name not in found]
        if missing:
            raise bad_request("[" + ",".join(f"{{key_missing,{name}}}" for name in missing) + "]")
        return found

    def flag(self, name: str) -> bool:
        """Returns whether a query parameter is "true"."""
        return self.request.query.get(name) == "true"


def _json(raw: bytes) -> object:
    """Reads JSON. Raises Problem, also for what no field of AMQP can have."""
    try:
        found: object = json.loads(raw, parse_int=_integer, parse_float=_float, parse_constant=_float)
        if b"\\u" in raw:
            json.dumps(found, ensure_ascii=False).encode()
        if _is_deep(found):
            raise bad_request(f"objects and lists are nested more than {_DEPTH} deep")
    except UnicodeEncodeError:
        raise bad_request("a text with half of a surrogate pair") from None
    except (ValueError, RecursionError):
        raise bad_request("not_json") from None
    return found


def _is_deep(found: object) -> bool:
    """Whether anything is nested deeper than allowed. Goes down level by level, not by recursion."""
    level: list[object] = [found]
    for _ in range(_DEPTH):
        inner: list[object] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        if not inner:
            return False
        level = inner
    return True


def _integer(digits: str) -> int:
    found = int(digits)
    if not -_INTEGERS <= found < _INTEGERS:
        raise bad_request(f"{digits} is beyond 64 bits")
    return found


def _float(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise bad_request(f"{digits} is not a number of 64 bits")
    return found


def text_of(body: Mapping[str, object], name: str, otherwise: str | None = None) -> str:
    """Returns a string of the body. Raises Problem for another type."""
    value = body.get(name, otherwise)
    if not isinstance(value, str):
        raise bad_request(f"{name} should be a string")
    return value


def truth_of(body: Mapping[str, object], name: str, otherwise: bool) -> bool:
    """Returns a boolean of the body, which some tools send as a string. Raises Problem for another type."""
    value = body.get(name, otherwise)
    if value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise bad_request(f"{name} should be a boolean")
    return value


def number_of(body: Mapping[str, object], name: str, otherwise: int | None = None) -> int:
    value = body.get(name, otherwise)
    try:
        return int(str(value))
    except ValueError:
        raise bad_request(f"{name} should be an integer") from None


def table_of(body: Mapping[str, object], name: str = "arguments") -> dict[str, object]:
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} should be an object")
    return value


# --- lists


def listed(items: list[dict[str, object]], query: Mapping[str, str]) -> object:
    """Applies the query to a list: filter by name, sort order, columns and page."""
    found, total = items, len(items)
    if "name" in query and "page" in query:
        found = _named(found, query["name"], query.get("use_regex") == "true")
    if "sort" in query:
        path = query["sort"].split(".")
        found = sorted(found, key=lambda item: _sortable(_at(item, path)))
    if query.get("sort_reverse") == "true":
        found = found[::-1]
    page = _paged(found, total, query) if "page" in query else None
    chosen = found if page is None else page.pop("items")
    assert isinstance(chosen, list)
    columns = [column for column in query.get("columns", "").split(",") if column]
    if columns:
        chosen = [columns_of(item, columns) for item in chosen]
    return chosen if page is None else {**page, "items": chosen}


def _named(items: list[dict[str, object]], name: str, is_pattern: bool) -> list[dict[str, object]]:
    try:
        pattern = Regex(name if is_pattern else re.escape(name), Dialect.PCRE, ignore_case=True)
        return [item for item in items if _found(pattern, str(item.get("name", "")), len(items))]
    except InvalidRegex as error:
        raise bad_request(error.detail) from None


def _found(pattern: Regex, name: str, names: int) -> bool:
    """Whether a pattern matches some part of `name`, one of `names`.

    Raises InvalidRegex if that takes too long for all of them.
    """
    if pattern.work > _WORK + _WORK_PER_NAME * names:
        raise too_long()
    return pattern.found_in(name)


def _paged(found: list[dict[str, object]], total: int, query: Mapping[str, str]) -> dict[str, object]:
    number, size = number_of(query, "page"), number_of(query, "page_size", _PAGE)
    if number < 1 or not 1 <= size <= _LARGEST_PAGE:
        raise bad_request(f"Invalid pagination parameters: page number {number}, page size {size}")
    pages = max(-(-len(found) // size), 1)
    if number > pages:
        raise Problem(400, "page_out_of_range", f"page out of range: {number} of {pages}")
    items = found[(number - 1) * size : number * size]
    return {
        "filtered_count": len(found),
        "item_count": len(items),
        "items": items,
        "page": number,
        "page_count": pages,
        "page_size": size,
        "total_count": total,
    }


def _at(item: object, path: Iterable[str]) -> object:
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    return item


def _sortable(value: object) -> tuple[int, float, str]:
    if isinstance(value, bool | int | float):
        return 0, float(value), ""
    return 1, 0.0, "" if value is None else str(value)


def columns_of(item: dict[str, object], columns: Iterable[str]) -> dict[str, object]:
    """Returns only the given columns; `a.b` is `b` of `a`."""
    found: dict[str, object] = {}
    for column in columns:
        first, _, rest = column.partition(".")
        if first not in item:
            continue
        value = item[first]
        if not rest:
            found[first] = value
        elif isinstance(value, dict):
            inner = columns_of(value, [rest])
            known = found.setdefault(first, {})
            if isinstance(known, dict):
                known.update(inner)
    return found
