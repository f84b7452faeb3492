"""Join tokens, signatures and the replay window, by themselves and through gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.api.admission import Admission, Refused
from treecast.middleware.api.call_auth import (
    AUTH_KEY,
    CHALLENGE_KEY,
    NO_RUN,
    PROTOCOL_KEY,
    CallKey,
    Proof,
    Signer,
)
from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.join_token import JoinToken, new_token
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control.server import CoordinatorServer, ServerSettings, new_id
from treecast.middleware.model.errors import Fault, TreecastError

Connect = Callable[..., CoordinatorClient]
Hello = Callable[..., pb.AttachRequest]
CLUSTER = "c" * 22
TOKEN = JoinToken(CLUSTER, 1, bytes(range(32)))
OTHER_KEY = JoinToken(CLUSTER, 1, bytes(32))
RUN = b"r" * 16
METHOD = "/treecast.v1.Coordinator/Attach"


def nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


def admit(
    admission: Admission, proof: str, now: float = 100.0, body: bytes = b"b", method: str = METHOD
) -> str:
    """Returns the reason of a refusal, or ''."""
    try:
        admission.admit({PROTOCOL_KEY: "1", AUTH_KEY: proof}, method, body, now)
    except Refused as refusal:
        return refusal.reason
    return ""


def signed(token: JoinToken = TOKEN, run: bytes = RUN, time: int = 100_000, number: int = 1) -> str:
    return CallKey(token).sign(METHOD, b"b", run, time, nonce(number)).format()


# --- tokens


@given(st.text(min_size=1, max_size=50), st.integers(0, 2**16 - 1), st.binary(min_size=32, max_size=32))
def test_tokens_go_round(cluster_id: str, key_id: int, key: bytes) -> None:
    token = JoinToken(cluster_id, key_id, key)
    assert JoinToken.parse(f" {token.format()}\n") == token
    assert len(token.derive("a")) == 32
    assert token.derive("a") != token.derive("b")


def test_a_tokens_bytes() -> None:
    assert TOKEN.format() == (
        "treecast1.AQABAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9jY2NjY2NjY2NjY2NjY2NjY2NjY2NjzmMZdQ"
    )
    assert repr(TOKEN) == f"JoinToken(cluster_id='{CLUSTER}', key_id=1)"


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: "treecast1." + b.hex()))
def test_no_text_but_a_token_is_one(text: str) -> None:
    with pytest.raises(TreecastError) as refused:
        JoinToken.parse(text)
    assert refused.value.fault is Fault.INVALID_REQUEST


def test_a_mistyped_token_is_told() -> None:
    text = TOKEN.format()
    for place in range(10, len(text) - 1):
        with pytest.raises(TreecastError, match="damaged"):
            JoinToken.parse(text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :])


# --- admission


def test_a_call_is_admitted_once() -> None:
    admission = Admission(CLUSTER, TOKEN, RUN)
    assert [admit(admission, signed()), admit(admission, signed())] == ["", "replayed"]
    assert admit(admission, signed(number=2)) == ""


def test_what_is_not_the_signed_call_is_refused() -> None:
    admission = Admission(CLUSTER, TOKEN, RUN)
    assert admit(admission, "") == "unsigned"
    assert admit(admission, "1.2.3") == "malformed"
    assert admit(admission, signed(), body=b"c") == "key"
    assert admit(admission, signed(), method="/treecast.v1.Coordinator/Detach") == "key"
    assert admit(admission, signed(OTHER_KEY)) == "key"
    assert admit(admission, signed(replace(TOKEN, key_id=2))) == "key"
    assert admit(admission, signed(replace(TOKEN, cluster_id="other"))) == "key"
    proof = Proof.parse(signed())
    assert proof is not None
    for changed in (
        replace(proof, time=proof.time + 1),
        replace(proof, nonce=nonce(2)),
        replace(proof, run=NO_RUN),
        replace(proof, mac=bytes(32)),
    ):
        assert admit(admission, changed.format()) == "key"
    assert admit(admission, proof.format()) == ""


@given(st.text())
def test_any_text_is_only_refused(text: str) -> None:
    assert admit(Admission(CLUSTER, TOKEN, RUN), text) in ("unsigned", "malformed", "key")


@pytest.mark.parametrize(
    ("time", "reason"), [(69_999, "stale"), (70_000, ""), (130_000, ""), (130_001, "stale")]
)
def test_the_window(time: int, reason: str) -> None:
    assert admit(Admission(CLUSTER, TOKEN, RUN), signed(time=time)) == reason


def test_a_call_of_an_earlier_run_is_stale() -> None:
    assert admit(Admission(CLUSTER, TOKEN, b"s" * 16), signed()) == "stale"


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 90_000)), max_size=60), st.integers(1, 5))
def test_no_call_is_admitted_twice_however_few_are_remembered(
    calls: list[tuple[int, int]], remembered: int
) -> None:
    admission = Admission(CLUSTER, TOKEN, RUN, max_nonces=remembered)
    admitted: set[str] = set()
    now = 30.0
    for number, (wait, time) in enumerate(calls):
        now += wait / 10
        proof = signed(time=time, number=number % 7)
        if admit(admission, proof, now) == "":
            assert proof not in admitted
            admitted.add(proof)
        assert admit(admission, proof, now) in ("replayed", "stale")
        assert len(admission._seen._nonces) <= remembered


def test_a_challenge_brings_both_clocks_together() -> None:
    admission, signer = Admission(CLUSTER, TOKEN, RUN), Signer(TOKEN)
    for ours, theirs in ((5.0, 1000.0), (1e9, 1010.0), (3.0, 1020.0)):  # this host's clock jumps
        proof = signer.sign(METHOD, b"b", nonce(1), ours)
        with pytest.raises(Refused) as refused:
            admission.admit({PROTOCOL_KEY: "1", AUTH_KEY: proof}, METHOD, b"b", theirs)
        ((key, challenge),) = refused.value.metadata
        assert key == CHALLENGE_KEY
        signer.learn(challenge, nonce(1), ours)
        assert admit(admission, signer.sign(METHOD, b"b", nonce(int(theirs)), ours + 1), theirs + 1) == ""


def test_a_challenge_is_of_the_key_and_of_the_call() -> None:
    signer, made = Signer(TOKEN), CallKey(TOKEN).challenge(RUN, 5, nonce(1))
    signer.learn(made, nonce(1), 0.0)
    for text, of in ((made, 2), (CallKey(OTHER_KEY).challenge(RUN, 5, nonce(1)), 1), ("nonsense", 1)):
        with pytest.raises(TreecastError, match="does not know this cluster's key"):
            signer.learn(text, nonce(of), 0.0)


# --- through gRPC


async def refused(call: Any) -> TreecastError:
    with pytest.raises(TreecastError) as found:
        await call
    return found.value


async def test_the_wrong_key_and_the_wrong_cluster(
    server: CoordinatorServer, connect: Connect, hello: Hello
) -> None:
    for token, cluster, reason, text in (
        (OTHER_KEY, "", "key", "join token"),
        (None, "", "unsigned", "join token"),
        (new_token("d" * 22), "", "cluster", "belongs to cluster 'dddd"),
        (None, "d" * 22, "cluster", "belongs to cluster 'dddd"),
    ):
        client = connect(server, token, cluster_id=cluster)
        error = await refused(client.attach(hello()))
        assert (error.fault, text in error.detail) == (Fault.POLICY_VIOLATION, True)
        assert (await refused(anext(client.watch()))).fault is Fault.POLICY_VIOLATION
        assert server.calls.counters.refused.pop(reason) == 2
    assert server.coordinator.stored.revision == 0


async def test_a_replayed_call_changes_nothing(
    server: CoordinatorServer, client: CoordinatorClient, hello: Hello
) -> None:
    await client.attach(hello())
    body = hello().SerializeToString()
    metadata = client._metadata(client._place, "Attach", body, nonce(7))
    async with grpc.aio.insecure_channel(str(server.address)) as channel:
        call = channel.unary_unary(METHOD)
        await call(body, metadata=metadata)
        revision = server.coordinator.stored.revision
        with pytest.raises(grpc.aio.AioRpcError) as again:
            await call(body, metadata=metadata)
    assert again.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert (server.coordinator.stored.revision, server.calls.counters.refused["replayed"]) == (revision, 1)


async def test_a_restart_and_a_jumping_clock_need_no_hand(
    server: CoordinatorServer, connect: Connect, hello: Hello, restart: Any
) -> None:
    now = [0.0]
    client = connect(server, clock=lambda: now[0])
    for jump in (0.0, 1e9, 1e3):
        now[0] = jump
        await client.attach(hello())
    later = await restart(server)
    await client.attach(hello())
    assert later.calls.counters.refused == {"stale": 1}
    await later.close(0)


async def test_without_a_key_the_first_attach_learns_the_cluster(
    settings: ServerSettings, connect: Connect, hello: Hello
) -> None:
    path = settings.path.with_name("open.sqlite")
    server = CoordinatorServer(replace(settings, token=None, path=path))
    await server.start()
    client = connect(server, None)
    await client.attach(hello())
    assert client.cluster_id == server.coordinator.stored.cluster_id
    assert len(client.cluster_id) == len(new_id()) == 22
    await server.close(0)
    other = CoordinatorServer(
        ServerSettings(Address("127.0.0.1", server.address.port), settings.path, None, cluster_id="e" * 22)
    )
    await other.start()
    assert "belongs to cluster" in (await refused(client.attach(hello()))).detail
    await other.close(0)


async def test_a_store_or_token_of_another_cluster(
    server: CoordinatorServer, settings: ServerSettings
) -> None:
    await server.close(0)
    for changed in (
        replace(settings, token=None, cluster_id="d" * 22),
        replace(settings, cluster_id="d" * 22),
        replace(settings, token=new_token("d" * 22)),
    ):
        assert "cluster" in (await refused(CoordinatorServer(changed).start())).detail


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xff"])
@pytest.mark.parametrize("method", ["Attach", "Watch"])
async def test_what_is_no_message_is_the_callers_fault(
    settings: ServerSettings, body: bytes, method: str
) -> None:
    server = CoordinatorServer(replace(settings, token=None))
    await server.start()
    async with grpc.aio.insecure_channel(str(server.address)) as channel:
        call = (channel.unary_stream if method == "Watch" else channel.unary_unary)(
            f"/treecast.v1.Coordinator/{method}"
        )
        for metadata, code in (
            ((("treecast-protocol", "1"),), grpc.StatusCode.INVALID_ARGUMENT),
            ((("treecast-protocol", "2"),), grpc.StatusCode.UNIMPLEMENTED),
            ((), grpc.StatusCode.UNIMPLEMENTED),
        ):
            answer = call(body, metadata=metadata)
            assert await answer.code() is code
            assert await answer.details()
    await server.close(0)


# --- answers


@given(st.binary(max_size=50), st.integers(0, 5))
def test_an_answer_is_opened_by_the_call_that_it_answers_alone(body: bytes, number: int) -> None:
    key = CallKey(TOKEN)
    sealed = key.seal(METHOD, nonce(1), number, body)
    assert key.open(METHOD, nonce(1), number, sealed) == body
    assert key.open(METHOD, nonce(2), number, sealed) is None
    assert key.open(METHOD, nonce(1), number + 1, sealed) is None
    assert key.open(METHOD + "x", nonce(1), number, sealed) is None
    assert CallKey(OTHER_KEY).open(METHOD, nonce(1), number, sealed) is None
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert key.open(METHOD, nonce(1), number, bytes(changed)) is None


def test_who_does_not_look_at_the_seal_reads_the_same_message() -> None:
    answer = pb.AttachResponse(cluster_id=CLUSTER, lease_seconds=3)
    sealed = CallKey(TOKEN).seal(METHOD, nonce(1), 0, answer.SerializeToString())
    read = pb.AttachResponse.FromString(sealed)
    assert (read.cluster_id, read.lease_seconds) == (CLUSTER, 3)


async def test_answers_that_are_not_the_coordinators_are_nonsense(
    server: CoordinatorServer, client: CoordinatorClient, hello, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.attach(hello())
    with monkeypatch.context() as patched:
        patched.setattr(Admission, "seal", lambda self, metadata, method, number, body: body)
        with pytest.raises(TreecastError, match="not signed by this cluster's key") as refused:
            await client.attach(hello())
        assert refused.value.fault is Fault.INTERNAL
        watching = asyncio.create_task(anext(client.watch()))
        done, _ = await asyncio.wait((watching,), timeout=0.5)
        assert not done  # it retries forever
    assert (await watching).snapshot


async def test_refusals_that_are_not_the_coordinators_are_believed_only_at_first(
    server: CoordinatorServer, connect, hello, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(server)
    unknown = pb.HostSession(host_id=99, incarnation=1)
    monkeypatch.setattr(Admission, "proof_of", lambda *_: ())
    with pytest.raises(TreecastError) as refused:
        await client.renew(unknown)
    assert refused.value.fault is Fault.UNKNOWN_MEMBER
    await client.attach(hello())
    with pytest.raises(TreecastError, match="UNKNOWN_MEMBER, not signed") as refused:
        await client.renew(unknown)
    assert refused.value.fault is Fault.INTERNAL
    monkeypatch.undo()
    with pytest.raises(TreecastError) as refused:
        await client.renew(unknown)
    assert refused.value.fault is Fault.UNKNOWN_MEMBER
