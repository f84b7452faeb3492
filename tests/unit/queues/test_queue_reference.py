"""Queues against their plain reference: random programs, with almost nothing kept in memory, and with all."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.queues.host import Host, bodies_of
from tests.unit.queues.reference import Plain, PlainQueue

from treecast.middleware.broker.queues import QueueSettings

kinds = st.fixed_dictionaries(
    {},
    optional={
        "message_ttl": st.sampled_from([0, 3000, 8000]),
        "max_length": st.integers(0, 6),
        "max_length_bytes": st.sampled_from([0, 7, 30]),
        "overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
        "max_priority": st.integers(1, 3),
    },
)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"),
            st.integers(1, 6),
            st.sampled_from([-1, 0, 2, 9]),
            st.sampled_from([-1, 0, 5000]),
        ),
        st.tuples(st.just("get"), st.just(0), st.just(0), st.just(0)),
        st.tuples(
            st.sampled_from(["settle", "reject", "requeue", "fail"]),
            st.integers(0, 5),
            st.just(0),
            st.just(0),
        ),
        st.tuples(st.just("wait"), st.integers(1, 4), st.just(0), st.just(0)),
        st.tuples(st.just("purge"), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def plain_of(kind: dict[str, object]) -> PlainQueue:
    found = PlainQueue()
    if "message_ttl" in kind:
        found.ttl = kind["message_ttl"] / 1000  # type: ignore[operator]
    found.max_length = kind.get("max_length", found.max_length)  # type: ignore[assignment]
    found.max_bytes = kind.get("max_length_bytes", found.max_bytes)  # type: ignore[assignment]
    found.overflow = kind.get("overflow", "drop-head")  # type: ignore[assignment]
    found.max_priority = kind.get("max_priority", 0)  # type: ignore[assignment]
    return found


@given(kinds, steps, st.booleans())
@settings(max_examples=300)
def test_a_queue_does_what_the_reference_does(
    kind: dict[str, object], program: list[tuple[str, int, int, int]], spills: bool
) -> None:
    host = Host(QueueSettings(resident_bytes=20, page_entries=3) if spills else None)
    host.vhost.exchange_definitions.declare(b"dlx", "fanout")
    host.queue("dead")
    host.bind("dlx", "dead")
    queue = host.queue("q", dead_letter_exchange="dlx", **kind)
    plain = plain_of(kind)
    held: list[tuple[object, Plain]] = []
    serial = 0
    for what, count, priority, expiration in program:
        if what == "publish":
            bodies = [b"%d" % (serial + number) for number in range(count)]
            serial += count
            _, taken = host.publish(*bodies, priority=priority, expiration=expiration)
            ttl = expiration / 1000 if expiration >= 0 else float("inf")
            took = [plain.publish(body, max(priority, 0), ttl, host.now) for body in bodies]
            assert taken == sum(took) or kind.get("message_ttl") == 0 or expiration == 0
        elif what == "get":
            part = host.get(queue)
            one = plain.take(host.now)
            assert (part is None) == (one is None)
            if part is not None and one is not None:
                assert bodies_of(part) == [one.body]
                assert part.redelivered == one.redelivered
                held.append((part, one))
        elif what == "wait":
            host.wait(count)
            plain.expire(host.now)
        elif what == "purge":
            assert queue.purge() == len(plain.ready)
            plain.ready.clear()
        elif held:
            part, one = held.pop(count % len(held))
            if what == "settle":
                queue.settle(part, 0, 1, None)  # type: ignore[arg-type]
            elif what == "reject":
                queue.reject(part, 0, 1, None, host.now)  # type: ignore[arg-type]
                plain.reject(one)
            else:
                queue.requeue(part, 0, 1, None, host.now, failed=what == "fail")  # type: ignore[arg-type]
                queue.pump(host.now)
                plain.requeue(one, what == "fail")
                plain.cut(host.now)
            host.vhost.touched(queue, host.now)
        assert queue.ready == len(plain.ready)
        assert queue.ready_bytes == sum(len(one.body) for one in plain.ready)
        assert queue.unsettled == len(held)
    assert sorted(host.drained("dead")) == sorted(body for body, _ in plain.dead)
    for part, _ in held:
        queue.settle(part, 0, 1, None)  # type: ignore[arg-type]
    queue.purge()
    assert not host.memory.runs
    assert not host.memory.pages
