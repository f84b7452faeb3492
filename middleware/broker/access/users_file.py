"""`users.toml`: users with what is stored of their passwords, and rules, as text and back. Pure.

certificates = ["RULE:^CN=([^,]+).*$/$1/L", "DEFAULT"]  whose a client certificate is; see `certificates`

[oauth]                                                 bearer tokens, see `bearer`
keys = "/etc/treecast/jwks.json"
audience = "treecast"
issuer = "https://login.shop"                           default: any
claim = "sub"                                           names the user; this is the default

[users.alice]
SCRAM-SHA-256 = "8192$SALT$STORED-KEY$SERVER-KEY"       base64; never a password
SCRAM-SHA-512 = "8192$SALT$STORED-KEY$SERVER-KEY"
admin = true                                            may do everything; default false
local = true                                            may log in from this machine only; default false

[[rules]]
permission = "allow"        or "deny", which wins
user = "alice"              or "*"
operation = "read"          one of `Operation`, or "all"
resource = "topic"          or group, transactional-id, cluster
pattern = "prefixed"        or "literal", the default
name = "orders."            literal "*" is every name
address = "10.0.0.7"        default "*"

[[quotas]]
user = "alice"              or "*"; left out: of a client id alone
client-id = "orders"        or "*"; left out: of a user alone
produce-bytes = 1000000     in a second; likewise fetch-bytes and requests

[[quotas]]
address = "10.0.0.7"        or "*": each other machine; for new connections alone
connections = 20            in a second
"""

from __future__ import annotations

import json
import tomllib
from typing import Final

import msgspec
from msgspec import Struct, field

from treecast.middleware.model.principal import ANONYMOUS
from treecast.middleware.model.scram import SHA256, SHA512, Verifier, read_verifier

from .authorizer import Operation, ResourceKind
from .bearer import OAuth
from .certificates import CertificateUsers, MappingError
from .identities import Content, User
from .quotas import Quota, Rate, check_quota
from .rules import EVERYBODY, Pattern, Permission, Rule

ALL: Final = "all"  # an operation in a rule
_HEAD: Final = (
    "# Users and rights. `treecast users` and `treecast acl` write this file, without comments of yours.\n"
    "# A daemon reads it again when it changes.\n"
)
_LONGEST: Final = 255  # bytes of a user's name


class UsersFileError(ValueError):
    """The file breaks a rule. The text names the place; it shows no verifier."""


class _User(Struct, forbid_unknown_fields=True):
    sha256: str = field(default="", name=SHA256)
    sha512: str = field(default="", name=SHA512)
    admin: bool = False
    local: bool = False


class _Rule(Struct, forbid_unknown_fields=True):
    permission: Permission
    user: str
    operation: str
    resource: ResourceKind
    name: str
    pattern: Pattern = Pattern.LITERAL
    address: str = EVERYBODY


class _Quota(Struct, forbid_unknown_fields=True, rename="kebab"):
    user: str = ""
    client_id: str = ""
    address: str = ""
    produce_bytes: float | None = None
    fetch_bytes: float | None = None
    requests: float | None = None
    connections: float | None = None


class _OAuth(Struct, forbid_unknown_fields=True):
    keys: str
    audience: str
    issuer: str = ""
    claim: str = "sub"


class _File(Struct, forbid_unknown_fields=True):
    certificates: list[str] = []
    oauth: _OAuth | None = None
    users: dict[str, _User] = {}
    rules: list[_Rule] = []
    quotas: list[_Quota] = []


def check_user_name(name: str) -> None:
    """Raises UsersFileError if no user may have this name."""
    if not name or len(name.encode(errors="replace")) > _LONGEST or not name.isprintable():
        raise UsersFileError(f"a user's name has 1 to {_LONGEST} bytes of printable text, not {name!r}")
    if name in (EVERYBODY, ANONYMOUS.name):
        raise UsersFileError(f"{name!r} stands for everybody, or for clients without a log-in")


def read_users(text: str) -> Content:
    """Reads the content of the file. Raises UsersFileError."""
    try:
        found = msgspec.convert(tomllib.loads(text), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsersFileError(str(error)) from error
    users = {name: _user(name, one) for name, one in found.users.items()}
    try:
        CertificateUsers(found.certificates)
    except MappingError as error:
        raise UsersFileError(f"certificates: {error}") from error
    rules = tuple([_rule(number, one) for number, one in enumerate(found.rules, 1)])
    quotas = tuple([_quota(number, one) for number, one in enumerate(found.quotas, 1)])
    return Content(users, rules, tuple(found.certificates), quotas, _oauth(found.oauth))


def _oauth(given: _OAuth | None) -> OAuth | None:
    if given is None:
        return None
    if not (given.keys and given.audience and given.claim):
        raise UsersFileError("oauth: keys, audience and claim cannot be empty")
    return OAuth(given.keys, given.audience, given.issuer, given.claim)


def _quota(number: int, given: _Quota) -> Quota:
    numbers = (given.produce_bytes, given.fetch_bytes, given.requests, given.connections)
    rates = {rate: one for rate, one in zip(Rate, numbers, strict=True) if one is not None}
    made = Quota(given.user, given.client_id, rates, given.address)
    try:
        check_quota(made)
    except ValueError as error:
        raise UsersFileError(f"quota {number}: {error}") from None
    return made


def _user(name: str, given: _User) -> User:
    check_user_name(name)
    verifiers: dict[str, Verifier] = {}
    for mechanism, text in ((SHA256, given.sha256), (SHA512, given.sha512)):
        if text:
            try:
                verifiers[mechanism] = read_verifier(mechanism, text)
            except ValueError as error:
                raise UsersFileError(f"user {name!r}: {error}") from None
    return User(name, verifiers, given.admin, given.local)


def _rule(number: int, given: _Rule) -> Rule:
    operations = {one.value: one for one in Operation}
    if given.operation != ALL and given.operation not in operations:
        known = ", ".join([ALL, *operations])
        raise UsersFileError(f"rule {number}: there is no operation {given.operation!r}; known are {known}")
    if not given.name or not given.user or not given.address:
        raise UsersFileError(f"rule {number}: user, name and address cannot be empty")
    return Rule(
        given.user,
        given.permission,
        operations.get(given.operation),
        given.resource,
        given.pattern,
        given.name,
        given.address,
    )


def write_users(content: Content) -> str:
    """Returns the text of the file, in the order of the content."""
    parts = [_HEAD]
    if content.certificates:
        parts.append(f"certificates = [{', '.join(map(_quoted, content.certificates))}]\n")
    if content.oauth is not None:
        given = [(name, getattr(content.oauth, name)) for name in ("keys", "audience", "issuer", "claim")]
        rows = [f"{name} = {_quoted(value)}" for name, value in given if value]
        parts.append("\n".join(["[oauth]", *rows]) + "\n")
    for user in content.users.values():
        rows = [f"[users.{_quoted(user.name)}]"]
        rows += [f"{name} = {_quoted(one.text)}" for name, one in user.verifiers.items()]
        rows += ["admin = true"] if user.admin else []
        rows += ["local = true"] if user.local else []
        parts.append("\n".join(rows) + "\n")
    parts += [_written(rule) for rule in content.rules]
    parts += [_written_quota(quota) for quota in content.quotas]
    return "\n".join(parts)


def _written(rule: Rule) -> str:
    fields = {
        "permission": rule.permission.value,
        "user": rule.user,
        "operation": rule.operation.value if rule.operation is not None else ALL,
        "resource": rule.kind.value,
        "pattern": rule.pattern.value,
        "name": rule.name,
        "address": rule.address,
    }
    return "\n".join(["[[rules]]", *(f"{name} = {_quoted(value)}" for name, value in fields.items())]) + "\n"


def _written_quota(quota: Quota) -> str:
    rows = [
        f"{name} = {_quoted(one)}"
        for name, one in (
            ("user", quota.user),
            ("client-id", quota.client_id),
            ("address", quota.address),
        )
        if one
    ]
    rows += [f"{rate.value} = {number!r}" for rate, number in quota.rates.items()]
    return "\n".join(["[[quotas]]", *rows]) + "\n"


def _quoted(text: str) -> str:
    """Returns a basic string of TOML: JSON's, with the one control character that TOML also forbids."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
