"""Regular expressions of subscriptions against topics that come and go: in passes, within bounds."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping

import pytest

from treecast.middleware.broker.groups.consumer import patterns as under_test
from treecast.middleware.broker.groups.consumer.patterns import Patterns
from treecast.middleware.broker.internal import INTERNAL
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.budget import WorkBudget, unbounded
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.regex import Regex

_CONFIG = next(iter(INTERNAL.values())).config


class Site:
    """The topics of a host."""

    def __init__(self, *names: str) -> None:
        self.revision = 0
        self._topics: dict[str, Topic] = {}
        self.add(*names)

    def add(self, *names: str) -> None:
        for name in names:
            self._topics[name] = Topic(name, uuid.uuid4(), 1, _CONFIG)
        self.revision += 1

    def remove(self, *names: str) -> None:
        for name in names:
            del self._topics[name]
        self.revision += 1

    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        raise TreecastError(Fault.UNKNOWN_TOPIC_ID)


def no_time() -> WorkBudget:
    """A budget of which every pass is over at once. Nothing calls back."""
    budget = WorkBudget(lambda: 0.0, lambda work: None, -1.0)
    budget.spent()
    return budget


def test_many_topics_are_matched_in_several_passes() -> None:
    names = [f"t-{number}" for number in range(500)]
    patterns, passes = Patterns(Site(*names)), 1
    while not patterns.learn("t-.*", no_time()):
        passes += 1
    assert passes > 2
    assert patterns.matching("t-.*") == set(names)


def test_topics_that_change_between_passes_count() -> None:
    site = Site(*(f"t-{number}" for number in range(500)))
    patterns = Patterns(site)
    assert not patterns.learn("t-.*", no_time())
    site.remove("t-0", "t-499")
    site.add("t-new")
    while not patterns.learn("t-.*", no_time()):
        pass
    assert patterns.matching("t-.*") == {f"t-{number}" for number in range(1, 499)} | {"t-new"}


@pytest.mark.parametrize("changes", [3, 2000])
def test_expressions_follow_the_topics_whenever_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    monkeypatch.setattr(under_test, "_CHANGES", 20)
    rng, site, texts = random.Random(5), Site(), ["a.*", ".*1", "(a|b)[0-9]", "__.*"]
    patterns = Patterns(site)
    for _ in range(changes):
        name = rng.choice("abc") + str(rng.randrange(12))
        if name in site.topics():
            site.remove(name)
        else:
            site.add(name)
        if rng.random() < 0.1:
            text = rng.choice(texts)
            known = {*site.topics(), *INTERNAL}
            assert patterns.matching(text) == {one for one in known if Regex(text).matches(one)}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_REMEMBERED", 3)
    patterns = Patterns(Site("a"))
    for number in range(10):
        patterns.check(f"a|{number}")
    assert len(patterns._patterns) == 3
    monkeypatch.setattr(under_test, "_REMEMBERED_BYTES", 0)
    patterns.check("b")
    assert len(patterns._patterns) == 1
    assert patterns._bytes == patterns._patterns["b"].size
    assert patterns.matching("a|1") == {"a"}


SLOW = "(.?){1000}(.?){1000}x"
SLOW_FOR_LONG_NAMES = "(.?){800}x"


def test_a_new_expression_that_takes_too_long_is_refused_and_not_kept() -> None:
    patterns = Patterns(Site("".join(chr(97 + number % 26) for number in range(240))))
    for _ in range(2):
        with pytest.raises(TreecastError) as refused:
            patterns.learn(SLOW, unbounded())
        assert refused.value.fault is Fault.INVALID_REGEX
    assert not patterns._patterns


def test_an_expression_in_use_leaves_out_topics_that_take_too_long() -> None:
    site = Site("ax")
    patterns = Patterns(site)
    patterns.check(SLOW_FOR_LONG_NAMES)
    site.add("".join(chr(97 + number % 26) for number in range(240)), "bx")
    assert {"ax", "bx"} >= patterns.matching(SLOW_FOR_LONG_NAMES) >= {"ax"}
