"""The tables that map the calls of a home's Protocol to requests between hosts."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

from treecast.middleware.broker.cluster import GroupHome
from treecast.middleware.broker.values import CommittedOffset, JoinGroup, MemberIdRequired
from treecast.middleware.fabric.channel import Answer
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.relay.homes.calls import GROUPS, TRANSACTIONS, Operation, TransactionCalls

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = [*GROUPS.operations, *TRANSACTIONS.operations]


def operation(name: str) -> Operation:
    (found,) = [one for one in ALL if one.name == name]
    return found


@pytest.mark.parametrize(("of", "calls"), [(GroupHome, GROUPS), (TransactionCalls, TRANSACTIONS)])
def test_each_method_of_a_protocol_is_a_call(of: type, calls: Any) -> None:
    methods = {name for name, _ in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}
    assert methods == {one.name for one in calls.operations}


def test_each_has_a_number_in_the_range_of_homes() -> None:
    numbers = [one.method.number for one in ALL]
    assert len(set(numbers)) == len(numbers)
    assert all(80 <= number < 100 or 102 <= number < 120 for number in numbers)


def test_a_request_is_the_arguments_and_says_which_home() -> None:
    end = operation("end")
    request = end.request(7, ("tx", ProducerIdentity(3, 1)), {"committed": True})
    read = end.method.asked(end.method.head(request))
    assert read == request
    assert (read.epoch, end.asked_for(read).id) == (7, "tx")


def test_hosts_of_other_versions() -> None:
    """A newer host sends an additional parameter last; an older one leaves the last one out."""
    alter = operation("alter_config")
    whole = msgspec.msgpack.decode(alter.method.head(alter.request(1, ("g", []), {"validate_only": True})))
    newer, older = [*whole, "what is not known here"], whole[:-1]
    assert alter.method.asked(msgspec.msgpack.encode(newer)).validate_only
    assert not alter.method.asked(msgspec.msgpack.encode(older)).validate_only


@pytest.mark.parametrize("head", [b"", b"\xc1", b"\x90", b"\x93\x01\xa1g\x05", b"\x92\xa1x\xa1g"])
def test_nonsense(head: bytes) -> None:
    heartbeat = operation("heartbeat").method
    with pytest.raises(TreecastError) as refused:
        heartbeat.asked(head)
    assert refused.value.fault is Fault.INVALID_REQUEST
    with pytest.raises(TreecastError) as answered:
        operation("sync").method.answered(Answer(head))
    assert answered.value.fault is Fault.INTERNAL


class Owner:
    """A home that gives fixed answers."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def fetch_offsets(self, *_: object, **__: object) -> object:
        return self.answer

    async def join(self, *_: object) -> object:
        raise MemberIdRequired("m" * 5000)


async def asked(name: str, owner: Owner, *arguments: object, **named: object) -> Any:
    """Returns what the caller gets after encoding and decoding of request and answer."""
    one = operation(name)
    request = one.method.asked(one.method.head(one.request(1, arguments, named)))
    return one.answered(one.method.answered(Answer(one.method.head(await one.done(owner, request)))))


async def test_what_was_found_and_what_was_refused_come_in_one_answer() -> None:
    found = {T0: CommittedOffset(5, 1, "note"), T1: TreecastError(Fault.UNSTABLE_OFFSETS, "wait")}
    answer = await asked("fetch_offsets", Owner(found), "g", None, require_stable=True)
    assert answer[T0] == found[T0]
    assert (answer[T1].fault, answer[T1].detail) == (Fault.UNSTABLE_OFFSETS, "wait")


async def test_a_member_id_comes_whole_with_its_refusal() -> None:
    request = JoinGroup("g", "", None, "c", "h", 1, 1, "consumer", (), True)
    with pytest.raises(MemberIdRequired) as required:
        await asked("join", Owner(None), request)
    assert required.value.member_id == "m" * 5000


def test_a_fault_that_is_not_known_here_is_internal() -> None:
    leave = operation("leave")
    head = leave.method.head([TreecastError(Fault.UNKNOWN_MEMBER, "x"), None])
    (known, nothing) = leave.method.answered(Answer(head))
    assert (known.fault, nothing) == (Fault.UNKNOWN_MEMBER, None)
    (unknown, _) = leave.method.answered(Answer(head.replace(b"UNKNOWN_MEMBER", b"OF_TOMORROW_XY")))
    assert (unknown.fault, unknown.detail) == (Fault.INTERNAL, "x")
