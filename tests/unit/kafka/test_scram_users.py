"""Users by Kafka's own calls: what kafka-configs does, and each refusal."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.kafka.test_rights import BOB, ROOT, log_in

from treecast.middleware.broker.access import (
    CLUSTER,
    Content,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
    Rule,
    read_users,
    write_users,
)
from treecast.middleware.model.scram import HASHES, SHA256, SHA512
from treecast.shims.kafka import errors
from treecast.shims.kafka.handlers import scram_users
from treecast.shims.kafka.server import KafkaFace

CODES = {SHA256: 1, SHA512: 2}
MAY_ALTER = Rule("bob", Permission.ALLOW, Operation.ALTER, ResourceKind.CLUSTER, Pattern.LITERAL, CLUSTER)


@pytest.fixture
def root(face: KafkaFace, connect: Callable[[], Any]) -> Callable[..., Any]:
    """Returns what makes a client that has logged in, at a face whose store is text in memory."""
    identities = face.identities
    identities.store = lambda change: read_users(write_users(change(identities.content)))
    identities.replace(Content({"bob": BOB, "root": ROOT}, (MAY_ALTER,)))

    async def make(user: str = "root") -> Any:
        client = connect()
        assert await log_in(client, user) == 0
        return client

    return make


def upsertion(user: str, password: bytes, mechanism: str = SHA512, iterations: int = 4096) -> dict[str, Any]:
    """Returns an upsertion as a client makes it: the password stays there."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)
    return {
        "name": user,
        "mechanism": CODES[mechanism],
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted,
    }


async def alter(
    client: Any, *upsertions: dict[str, Any], deletions: tuple[tuple[str, int], ...] = ()
) -> dict[str, int]:
    """Returns the error code of each user."""
    gone = [{"name": name, "mechanism": code} for name, code in deletions]
    answer = await client.call("AlterUserScramCredentials", 0, deletions=gone, upsertions=list(upsertions))
    assert all(bool(row.error_message) == bool(row.error_code) for row in answer.results)
    return {row.user: row.error_code for row in answer.results}


async def described(client: Any, *names: str) -> dict[str, list[tuple[int, int]] | int]:
    asked = [{"name": name} for name in names] if names else None
    answer = await client.call("DescribeUserScramCredentials", 0, users=asked)
    assert answer.error_code == 0
    return {
        row.user: row.error_code or [(one.mechanism, one.iterations) for one in row.credential_infos]
        for row in answer.results
    }


async def test_a_user_is_made_changed_and_deleted(root: Callable[..., Any], connect: Any) -> None:
    client = await root()
    assert await alter(client, upsertion("new", b"first"), upsertion("new", b"first", SHA256, 8192)) == {
        "new": 0
    }
    assert await described(client, "new") == {"new": [(1, 8192), (2, 4096)]}
    assert await log_in(connect(), "new", b"first") == 0
    assert await alter(client, upsertion("new", b"second"), deletions=(("new", 1),)) == {"new": 0}
    assert await log_in(connect(), "new", b"first") == errors.SASL_AUTHENTICATION_FAILED
    assert await log_in(connect(), "new", b"second") == 0
    assert set(await described(client)) == {"bob", "root", "new"}
    assert await alter(client, deletions=(("new", 2),)) == {"new": 0}
    assert await log_in(connect(), "new", b"second") == errors.SASL_AUTHENTICATION_FAILED
    assert await described(client, "new") == {"new": errors.RESOURCE_NOT_FOUND}


async def test_what_is_kept_of_a_user_that_is_altered(face: KafkaFace, root: Callable[..., Any]) -> None:
    assert await alter(await root(), upsertion("root", b"other")) == {"root": 0}
    changed = face.identities.content.users["root"]
    assert changed.admin
    assert changed.verifiers[SHA512].fits(b"other")
    assert changed.verifiers[SHA256] == ROOT.verifiers[SHA256]
    assert face.identities.content.rules == (MAY_ALTER,)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": ""}, errors.UNACCEPTABLE_CREDENTIAL),
        ({"name": "*"}, errors.UNACCEPTABLE_CREDENTIAL),
        ({"name": "a\x01b"}, errors.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 4095}, errors.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 16_385}, errors.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": -1}, errors.UNACCEPTABLE_CREDENTIAL),
        ({"salt": b""}, errors.UNACCEPTABLE_CREDENTIAL),
        ({"salt": bytes(2000)}, errors.UNACCEPTABLE_CREDENTIAL),
        ({"salted_password": b"short"}, errors.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 0}, errors.UNSUPPORTED_SASL_MECHANISM),
        ({"mechanism": 3}, errors.UNSUPPORTED_SASL_MECHANISM),
    ],
)
async def test_wrong_upsertions(
    changes: dict[str, Any], code: int, face: KafkaFace, root: Callable[..., Any]
) -> None:
    """The others of the request are done all the same."""
    wrong = upsertion("new", b"x") | changes
    assert await alter(await root(), wrong, upsertion("fine", b"x")) == {wrong["name"]: code, "fine": 0}
    assert set(face.identities.content.users) == {"bob", "root", "fine"}


async def test_twice_in_a_request_and_what_is_not_there(root: Callable[..., Any]) -> None:
    client = await root()
    twice = (upsertion("new", b"x"), upsertion("new", b"y"))
    assert await alter(client, *twice) == {"new": errors.DUPLICATE_RESOURCE}
    assert await alter(client, upsertion("bob", b"x"), deletions=(("bob", 2),)) == {
        "bob": errors.DUPLICATE_RESOURCE
    }
    assert await alter(client, deletions=(("nobody", 1),)) == {"nobody": errors.RESOURCE_NOT_FOUND}
    assert await described(client, "bob", "bob") == {"bob": errors.DUPLICATE_RESOURCE}


async def test_an_administrator_is_altered_by_administrators_only(
    face: KafkaFace, root: Callable[..., Any]
) -> None:
    """The right to alter the cluster is not that to become its administrator."""
    client = await root("bob")
    assert await alter(client, upsertion("root", b"mine"), upsertion("new", b"x")) == {
        "root": errors.CLUSTER_AUTHORIZATION_FAILED,
        "new": 0,
    }
    assert face.identities.content.users["root"] == ROOT


async def test_a_request_has_a_bounded_number_of_rows(
    face: KafkaFace, root: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop stands while a request is answered, and each change writes the whole file."""
    client = await root()
    names = [f"u{number}" for number in range(1001)]
    answer = await client.call("DescribeUserScramCredentials", 0, users=[{"name": name} for name in names])
    assert (answer.error_code, answer.results) == (errors.INVALID_REQUEST, [])
    assert set(await described(client, *names[1:])) == set(names[1:])
    row = upsertion("", b"x")
    before = face.identities.version
    refused = await alter(client, *[{**row, "name": name} for name in names])
    assert refused == dict.fromkeys(names, errors.INVALID_REQUEST)
    assert face.identities.version == before
    assert await alter(client, *[{**row, "name": name} for name in names[1:]]) == dict.fromkeys(names[1:], 0)
    assert face.identities.version == before + 1
    monkeypatch.setattr(scram_users, "_MOST_USERS", 1003)
    assert await alter(client, upsertion("one", b"x"), upsertion("two", b"x"), upsertion("u7", b"y")) == {
        "one": 0,
        "two": errors.POLICY_VIOLATION,
        "u7": 0,
    }


async def test_the_first_user_is_not_made_so(face: KafkaFace, connect: Callable[[], Any]) -> None:
    """Without an administrator, nobody could do anything from then on."""
    client = connect()
    assert await alter(client, upsertion("new", b"x")) == {"new": errors.SECURITY_DISABLED}
    assert not face.identities.closed
