"""DescribeUserScramCredentials, AlterUserScramCredentials: the users of the store with a password (KIP-554).

The client sends no password, but what a server derives from one; the store keeps a verifier of it. A user
that is not there is made, without rights. One whose last password is taken away stays, with its rules, and
can log in no more but by a certificate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from treecast.middleware.broker.access import Content, User, UsersFileError, check_user_name
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.scram import (
    LEAST_ITERATIONS,
    SHA256,
    SHA512,
    Verifier,
    digest_size,
    verifier_of_salted,
)

from .. import errors
from .. import versions as v
from .base import MOST_ROWS, TOO_MANY_ROWS, Context, Fields, Handler, Message, refuse_with_message

_CODES: Final[Mapping[str, int]] = MappingProxyType({SHA256: 1, SHA512: 2})
_MECHANISMS: Final[Mapping[int, str]] = MappingProxyType({code: name for name, code in _CODES.items()})
_MOST_ITERATIONS: Final = 16_384  # Kafka's
_LONGEST_SALT: Final = 1024
_MOST_USERS: Final = 10_000  # that there may be before one more is made here; the file is written as a whole
_NO_USERS: Final = (
    "no user exists, and the first one has to be an administrator: `treecast users add NAME --admin`"
)
_TWICE: Final = "a user's credential cannot be altered twice in one request"


class _Refused(Exception):
    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.code = code


# --- describing


def describe_user_scram_credentials(ctx: Context, request: Message) -> Fields:
    """Returns all users with a password, or those that are named."""
    known = ctx.log_in.identities.content.users
    if not request.users:
        return _all([_row(user) for user in known.values() if user.verifiers])
    if len(request.users) > MOST_ROWS:
        return {"error_code": errors.INVALID_REQUEST, "error_message": TOO_MANY_ROWS, "results": []}
    times = Counter([one.name for one in request.users])
    return _all([_described(known.get(name), name, count) for name, count in times.items()])


def _all(rows: Sequence[Fields]) -> Fields:
    return {"error_code": errors.NONE, "error_message": None, "results": rows}


def _described(user: User | None, name: str, times: int) -> Fields:
    if times > 1:
        return _result(name, errors.DUPLICATE_RESOURCE, "a user cannot be named twice") | {
            "credential_infos": []
        }
    if user is None or not user.verifiers:
        detail = f"Attempt to describe a user credential that does not exist: {name}"
        return _result(name, errors.RESOURCE_NOT_FOUND, detail) | {"credential_infos": []}
    return _row(user)


def _row(user: User) -> dict[str, object]:
    infos = [
        {"mechanism": _CODES[name], "iterations": one.iterations} for name, one in user.verifiers.items()
    ]
    return _result(user.name, errors.NONE, None) | {"credential_infos": infos}


def _result(name: str, code: int, detail: str | None) -> dict[str, object]:
    return {"user": name, "error_code": code, "error_message": detail}


# --- altering


def alter_user_scram_credentials(ctx: Context, request: Message) -> Fields:
    """Alters the users whose alterations are all right; each of the others gets its reason, and stays."""
    deletions, upsertions = _by_name(request.deletions), _by_name(request.upsertions)
    names = list(dict.fromkeys([*deletions, *upsertions]))
    identities = ctx.log_in.identities
    if not identities.closed:
        return {"results": [_result(name, errors.SECURITY_DISABLED, _NO_USERS) for name in names]}
    if len(request.deletions) + len(request.upsertions) > MOST_ROWS:
        return _refuse_alter(request, errors.INVALID_REQUEST, TOO_MANY_ROWS)
    changes = _Alterations(len(identities.content.users))
    refused: dict[str, _Refused] = {}
    for name in names:
        try:
            _check_administrator(ctx, name)
            known = identities.content.users.get(name)
            changes.add(known, deletions.get(name, []), upsertions.get(name, []))
        except _Refused as error:
            refused[name] = error
    if changes.users:
        try:
            identities.change(changes)
        except TreecastError as error:
            refused |= {name: _Refused(ctx.code(error), error.detail) for name in changes.users}
    return {"results": [_outcome(name, refused.get(name)) for name in names]}


def _by_name(rows: Iterable[Message]) -> dict[str, list[Message]]:
    found: dict[str, list[Message]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
    return found


def _outcome(name: str, refused: _Refused | None) -> Fields:
    if refused is None:
        return _result(name, errors.NONE, None)
    return _result(name, refused.code, str(refused))


def _check_administrator(ctx: Context, name: str) -> None:
    """The right to alter users makes no administrator; an administrator's new password would."""
    identities = ctx.log_in.identities
    if identities.is_admin(name) and not identities.is_admin(ctx.principal.name):
        raise _Refused(
            errors.CLUSTER_AUTHORIZATION_FAILED, "only an administrator alters an administrator's password"
        )


class _Alterations:
    """The new verifiers of users, as a change of the store. None: of a mechanism that is taken away."""

    def __init__(self, count: int) -> None:
        """`count`: of the users that there are."""
        self.users: dict[str, dict[str, Verifier | None]] = {}
        self._count = count

    def add(self, known: User | None, deletions: list[Message], upsertions: list[Message]) -> None:
        """Adds the alterations of one user. Raises _Refused."""
        rows = [*deletions, *upsertions]
        name = rows[0].name
        given = [row.mechanism for row in rows]
        if any(one not in _MECHANISMS for one in given):
            raise _Refused(errors.UNSUPPORTED_SASL_MECHANISM, "an unknown mechanism of SCRAM")
        if len(set(given)) != len(given):
            raise _Refused(errors.DUPLICATE_RESOURCE, _TWICE)
        held = known.verifiers if known is not None else {}
        gone = [_MECHANISMS[row.mechanism] for row in deletions]
        if any(one not in held for one in gone):
            raise _Refused(
                errors.RESOURCE_NOT_FOUND,
                f"Attempt to delete a user credential that does not exist: {name}",
            )
        made: dict[str, Verifier | None] = dict.fromkeys(gone)
        made.update({_MECHANISMS[row.mechanism]: _verifier(row) for row in upsertions})
        if known is None:
            if self._count >= _MOST_USERS:
                raise _Refused(errors.POLICY_VIOLATION, f"there are {_MOST_USERS} users: no more are made")
            self._count += 1
        self.users[name] = made

    def __call__(self, content: Content) -> Content:
        users = dict(content.users)
        for name, made in self.users.items():
            before = users.get(name, User(name))
            merged = {**before.verifiers, **made}
            left = {key: one for key, one in merged.items() if one is not None}
            users[name] = msgspec.structs.replace(before, verifiers=left)
        return msgspec.structs.replace(content, users=users)


def _verifier(row: Message) -> Verifier:
    """Returns the verifier that an upsertion asks for. Raises _Refused."""
    mechanism = _MECHANISMS[row.mechanism]
    for wrong, detail in _faults(row, mechanism):
        if wrong:
            raise _Refused(errors.UNACCEPTABLE_CREDENTIAL, detail)
    try:
        check_user_name(row.name)
    except UsersFileError as error:
        raise _Refused(errors.UNACCEPTABLE_CREDENTIAL, str(error)) from None
    return verifier_of_salted(mechanism, row.iterations, bytes(row.salt), bytes(row.salted_password))


def _faults(row: Message, mechanism: str) -> Iterable[tuple[bool, str]]:
    size = digest_size(mechanism)
    return (
        (not row.name, "Username must not be empty"),
        (row.iterations < LEAST_ITERATIONS, f"Too few iterations: at least {LEAST_ITERATIONS}"),
        (row.iterations > _MOST_ITERATIONS, f"Too many iterations: at most {_MOST_ITERATIONS}"),
        (not 0 < len(row.salt) <= _LONGEST_SALT, f"a salt has 1 to {_LONGEST_SALT} bytes"),
        (len(row.salted_password) != size, f"a salted password of {mechanism} has {size} bytes"),
    )


def _refuse_alter(request: Message, code: int, detail: str) -> Fields:
    names = dict.fromkeys([row.name for row in (*request.deletions, *request.upsertions)])
    return {"results": [_result(name, code, detail) for name in names]}


HANDLERS = {
    v.DESCRIBE_USER_SCRAM_CREDENTIALS: Handler(describe_user_scram_credentials, refuse_with_message),
    v.ALTER_USER_SCRAM_CREDENTIALS: Handler(alter_user_scram_credentials, _refuse_alter),
}
