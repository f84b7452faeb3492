"""Wishes as the content controller is told of them: only what content streams carry, and never too many."""

from __future__ import annotations

from treecast.middleware.broker.filtering import content_filter
from treecast.middleware.control.content.controller import wishes_of
from treecast.middleware.daemon.told_wishes import MOST, MOST_BYTES, told
from treecast.middleware.model.wishes import Wish
from treecast.middleware.routing.content import TopicWish


def test_topics_and_filters_are_told_and_shared_subscriptions_are_not() -> None:
    cheap = content_filter("price < 50")
    found = told([Wish.of_mqtt(b"orders", cheap), Wish.of_mqtt(b"a/+"), Wish.of_mqtt(b"$share/group/b/#")])
    assert [(one.topics, one.filter) for one in found] == [("orders", "price < 50"), ("a/+", "")]


def test_too_many_wishes_are_one_for_everything() -> None:
    wishes = [Wish.of_mqtt(b"t%d" % number) for number in range(MOST + 1)]
    assert len(told(wishes[:MOST])) == MOST
    assert wishes_of(told(wishes)) == (TopicWish(""),)
    long = content_filter("name == '" + "x" * 4000 + "'")
    many = [Wish.of_mqtt(b"t%d" % number, long) for number in range(MOST_BYTES // 4000 + 1)]
    assert wishes_of(told(many)) == (TopicWish(""),)
