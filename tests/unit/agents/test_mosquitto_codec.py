"""Two changes that an agent of MQTT makes to publishes: topics of runs, and the hop of the loop guard."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treecast.agents.mosquitto.codec import NAME, has_crossed, hop_property, with_topics
from treecast.agents.mosquitto.topics import OUT, Rule, TopicMap
from treecast.middleware.broker.pubsub import messages_in, run_of
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Publish, encode
from treecast.shims.mqtt.codec_properties import Properties, write_properties

MESSAGES = st.lists(
    st.tuples(st.sampled_from(["a/1", "a/22", "b/1", "c"]), st.binary(max_size=300)), min_size=1, max_size=20
)
MAP = TopicMap([Rule("a/#", "out", 1, "", "longer/"), Rule("1", "out", 1, "b/", "")], OUT)
USER = st.lists(st.tuples(st.sampled_from([NAME, "other"]), st.text("ab/", max_size=6)), max_size=4)


@given(MESSAGES, st.sampled_from([0, 1]), st.sampled_from([V311, V5]))
def test_a_run_with_other_topics_is_what_its_messages_are(
    messages: list[tuple[str, bytes]], qos: int, version: int
) -> None:
    packets = [
        Publish(topic.encode(), payload, qos, packet_id=number if qos else 0)
        for number, (topic, payload) in enumerate(messages, 1)
    ]
    mapped = with_topics(b"".join(encode(one, version) for one in packets), MAP)
    expected = [
        ({"a": b"longer/" + topic.encode(), "b": topic[2:].encode()}[topic[0]], payload)
        for topic, payload in messages
        if topic[0] in "ab"
    ]
    run = run_of(version, mapped)
    if run is None:
        assert mapped == b""
        assert expected == []
        return
    assert [(one.topic, one.payload) for one in messages_in(run, qos, 0, len(mapped))] == expected


@given(USER)
def test_the_hop_of_a_cluster_is_found_among_other_properties(user: list[tuple[str, str]]) -> None:
    written = write_properties(Properties(content_type="t", user=tuple(user)))
    properties = written[1:] if written[0] < 0x80 else written[2:]
    assert has_crossed(properties, "a") == any(
        name == NAME and value.startswith("a/") for name, value in user
    )
    assert has_crossed(properties + hop_property("ab", "site"), "ab")
    assert not has_crossed(hop_property("other", "site"), "ab")


def test_a_payload_like_a_hop_is_none() -> None:
    text = hop_property("a", "site").decode()
    written = write_properties(Properties(content_type=text))
    assert not has_crossed(written[1:], "a")
