"""OAUTHBEARER at the Kafka face: the messages, the refusal in two steps, and the end of a token."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.provider import AUDIENCE, ISSUER, Provider
from tests.unit.kafka.test_rights import BOB, ROOT, close

from treecast.middleware.broker.access import Content, JwksTokens, OAuth, User
from treecast.middleware.model.principal import Proof
from treecast.shims.kafka import errors
from treecast.shims.kafka.handlers.sasl import _presented
from treecast.shims.kafka.log_in import State
from treecast.shims.kafka.server import KafkaFace

jwt = pytest.importorskip("jwt", reason="PyJWT comes with the extras `oauth` and `test`")
PROVIDER = Provider(jwt)


@pytest.fixture
def opened(face: KafkaFace, connect: Callable[[], Any]) -> Callable[..., Any]:
    """Returns what makes a client that has chosen OAUTHBEARER."""
    face.identities.tokens = JwksTokens(OAuth("", AUDIENCE, ISSUER), PROVIDER.jwks())
    face.identities.replace(Content({"alice": User("alice"), "bob": BOB, "root": ROOT}))

    async def make() -> Any:
        client = connect()
        answer = await client.call("SaslHandshake", 1, mechanism="OAUTHBEARER")
        assert answer.error_code == 0
        assert "OAUTHBEARER" in answer.mechanisms
        return client

    return make


def token(**claims: Any) -> str:
    return PROVIDER.token(claims, now=time.time())


async def present(client: Any, made: str, head: bytes = b"n,,", more: bytes = b"") -> Any:
    message = head + b"\x01" + b"auth=Bearer " + made.encode() + b"\x01" + more + b"\x01"
    return await client.call("SaslAuthenticate", 2, auth_bytes=message)


async def test_a_log_in(opened: Callable[..., Any]) -> None:
    """The session lasts as long as the token."""
    client = await opened()
    answer = await present(client, token(), more=b"traceId=7\x01")
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    assert 500_000 < answer.session_lifetime_ms <= 600_000
    principal = client.connection.log_in.granted.principal
    assert (principal.name, principal.proof) == ("alice", Proof.TOKEN)
    assert (await client.call("ListGroups", 4)).error_code == 0


@pytest.mark.parametrize(
    ("claims", "head"),
    [
        ({"aud": "another"}, b"n,,"),
        ({"sub": "nobody"}, b"n,,"),
        ({"exp": 1}, b"n,,"),
        ({}, b"n,a=root,"),
    ],
)
async def test_a_refusal(claims: dict[str, Any], head: bytes, opened: Callable[..., Any]) -> None:
    """It is told in two steps, and does not say what is wrong."""
    client = await opened()
    first = await present(client, token(**claims), head)
    assert (first.error_code, first.auth_bytes) == (0, b'{"status":"invalid_token"}')
    assert client.connection.log_in.state is State.CHOSEN
    second = await client.call("SaslAuthenticate", 2, auth_bytes=b"\x01")
    assert second.error_code == errors.SASL_AUTHENTICATION_FAILED
    assert client.connection.log_in.state is State.FAILED


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,\x01auth=Bearer x\x01\x01",
        b"n,,\x01traceId=7\x01\x01",
        b"n,,\x01auth=Bearer x\x01extension\x01\x01",
        b"n,,\x01auth=Bearer x\x01Auth=Bearer y\x01\x01",
    ],
)
async def test_malformed_messages(message: bytes, opened: Callable[..., Any]) -> None:
    client = await opened()
    answer = await client.call("SaslAuthenticate", 2, auth_bytes=message)
    assert answer.error_code == errors.SASL_AUTHENTICATION_FAILED


async def test_a_refused_token_is_no_way_round(opened: Callable[..., Any]) -> None:
    """After a refusal another token on the same try does not count."""
    client = await opened()
    await present(client, token(aud="another"))
    assert (await present(client, token())).error_code == errors.SASL_AUTHENTICATION_FAILED


async def test_after_its_end_only_another_log_in_is_served(opened: Callable[..., Any]) -> None:
    client = await opened()
    assert (await present(client, token())).error_code == 0
    client.connection.log_in.until = time.time() - 1
    assert (await client.call("ApiVersions", 0)).error_code == 0
    assert (await client.call("SaslHandshake", 1, mechanism="OAUTHBEARER")).error_code == 0
    assert (await present(client, token(sub="bob"))).auth_bytes, "the connection stays its user's"
    late = await opened()
    assert (await present(late, token())).error_code == 0
    late.connection.log_in.until = time.time() - 1
    late.send("ListGroups", 4)
    await late.nothing()
    again = await opened()
    assert (await present(again, token())).error_code == 0
    again.connection.log_in.until = time.time() - 1
    assert (await again.call("SaslHandshake", 1, mechanism="OAUTHBEARER")).error_code == 0
    assert (await present(again, token())).error_code == 0
    assert (await again.call("ListGroups", 4)).error_code == 0


async def test_without_keys_it_is_not_offered(face: KafkaFace, connect: Callable[[], Any]) -> None:
    close(face)
    answer = await connect().call("SaslHandshake", 1, mechanism="OAUTHBEARER")
    assert answer.error_code == errors.UNSUPPORTED_SASL_MECHANISM
    assert "OAUTHBEARER" not in answer.mechanisms


async def test_a_user_of_this_machine_only(face: KafkaFace, opened: Callable[..., Any]) -> None:
    users = face.identities.content.users
    alice = msgspec.structs.replace(users["alice"], local=True)
    face.identities.replace(Content({**users, "alice": alice}))
    client = await opened()
    client.connection.log_in.origin = "10.0.0.7"
    assert (await present(client, token())).auth_bytes


async def test_one_token_is_read_of_a_message_of_bounded_length(opened: Callable[..., Any]) -> None:
    """A stranger may send much before the log-in, and nothing of it is tried in more ways than one."""
    valid = token()
    for more in (b"auth=Bearer x\x01" * 2, b"auth=Bearer x\x01" * 30_000, b"traceId=7\x01" * 3_000):
        client = await opened()
        answer = await present(client, valid, more=more)
        assert answer.error_code == errors.SASL_AUTHENTICATION_FAILED
        assert "malformed" in answer.error_message


def test_the_parts_of_a_message() -> None:
    assert _presented(b"n,,\x01auth=Bearer a.b\x01\x01") == (b"", b"a.b")
    assert _presented(b"n,a=me,\x01host=x\x01AUTH=bearer  a=\x01port=\x01\x01") == (b"me", b"a=")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    found = _presented(message)
    assert found is None or message.startswith(b"n,")
