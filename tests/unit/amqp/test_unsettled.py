"""Delivery tags in ranges, compared with a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queues.host import Host, run

from treecast.middleware.broker.queues import MessageQueue, Part
from treecast.shims.amqp.session_unsettled import Given, Unsettled

steps = st.lists(
    st.tuples(
        st.sampled_from(["give", "take", "upto", "all", "back"]), st.integers(0, 30), st.integers(1, 5)
    ),
    max_size=40,
)


def part_of(count: int) -> Part:
    given_run = run(*[b"x"] * count)
    return Part(given_run, 0, 0, len(given_run.data), count, count, 1, 0.0, 0)


def told(taken: list[Given]) -> list[tuple[int, Part, int]]:
    """Returns (tag, part, number in it) of each message."""
    return [(one.first + n, one.part, one.offset + n) for one in taken for n in range(one.count)]


@given(steps)
def test_ranges_are_what_single_tags_would_be(program: list[tuple[str, int, int]]) -> None:
    queue: MessageQueue = Host().queue()
    ranges, plain = Unsettled(), {}
    next_tag = 1
    last: list[Given] = []
    for what, tag, count in program:
        if what == "give":
            part = part_of(count)
            ranges.add(Given(next_tag, count, 0, part, queue, None))
            for number in range(count):
                plain[next_tag + number] = (next_tag + number, part, number)
            next_tag += count
            continue
        if what == "take":
            tags = list(range(tag, tag + count))
            tags = tags if all(one in plain for one in tags) else []
            last = ranges.take(tag, count)
        elif what == "upto":
            tags = (
                [one for one in sorted(plain) if one <= tag or tag == 0] if tag in plain or tag == 0 else []
            )
            last = ranges.take_up_to(tag)
        elif what == "all":
            tags = sorted(plain)
            last = ranges.clear()
        else:
            ranges.put_back(last)
            plain.update({one[0]: one for one in told(last)})
            last = []
            tags = []
        assert told(last) == [plain.pop(one) for one in tags]
        assert ranges.count == len(plain)
    assert told(ranges.clear()) == [plain[one] for one in sorted(plain)]
