"""Rules that map topics of the broker to topics of the cluster, and back: as in the bridge section of
`mosquitto.conf`, where the cluster is the remote broker.

    PATTERN [out | in | both] [QOS] [LOCAL-PREFIX] [REMOTE-PREFIX]

Going out, a topic at the broker that matches LOCAL-PREFIX + PATTERN has the local prefix replaced by the
remote one. Coming in, it is the other way round. `""` stands for nothing. An empty pattern stands for the one
topic that a prefix names.

Pure. Source: mosquitto.conf(5), `topic`; MQTT 5.0, section 4.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, cast

from msgspec import Struct

from treecast.shims.mqtt.codec import MqttError
from treecast.shims.mqtt.codec_read import check_filter

Direction = Literal["out", "in", "both"]
OUT: Final = "out"
IN: Final = "in"
BOTH: Final = "both"
_DIRECTIONS: Final = (OUT, IN, BOTH)
_NOTHING: Final = '""'
_MOST_KNOWN: Final = 65_536  # topics whose counterpart is remembered
_LONGEST: Final = 0xFFFF  # bytes of a topic


class BadRule(ValueError):
    """A rule that cannot be used. The text says why."""


class Rule(Struct, frozen=True):
    """One rule. `local`, `remote`: the prefixes at the broker and in the cluster."""

    pattern: str
    direction: Direction = "out"
    qos: int = 0
    local: str = ""
    remote: str = ""

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Returns the rule of a line. Raises BadRule."""
        words = text.split()
        if not words or len(words) > 5:
            raise BadRule(f"{text!r}: a rule is PATTERN [out|in|both] [QOS] [LOCAL-PREFIX] [REMOTE-PREFIX]")
        words += ["out", "0", _NOTHING, _NOTHING][len(words) - 1 :]
        pattern, direction, qos, local, remote = ["" if one == _NOTHING else one for one in words]
        if direction not in _DIRECTIONS:
            raise BadRule(f"{text!r}: {direction!r} is none of out, in, both")
        if qos not in ("0", "1", "2"):
            raise BadRule(f"{text!r}: the QoS is 0, 1 or 2")
        rule = cls(pattern, cast(Direction, direction), int(qos), local, remote)
        rule.check()
        return rule

    def check(self) -> None:
        """Raises BadRule."""
        if not self.pattern and not (self.local and self.remote):
            raise BadRule("a rule without a pattern needs a local and a remote prefix, which are its topics")
        for prefix in (self.local, self.remote):
            if "+" in prefix or "#" in prefix:
                raise BadRule(f"prefix {prefix!r} has a wildcard")
            if (filter := prefix + self.pattern).startswith("$"):
                raise BadRule(f"{filter!r}: topics that begin with $ belong to their broker")
            try:
                check_filter(filter.encode())
            except MqttError as error:
                raise BadRule(error.detail) from error

    def __str__(self) -> str:
        words = [self.pattern or _NOTHING, self.direction, str(self.qos)]
        if self.local or self.remote:
            words += [self.local or _NOTHING, self.remote or _NOTHING]
        return " ".join(words)


class TopicMap:
    """The rules of one way: `out`, from the broker to the cluster, or in.

    `filters`: what to subscribe to at the beginning of the way, with the highest QoS of each. `plain`: no
    rule changes a topic.
    """

    def __init__(self, rules: Iterable[Rule], way: Direction) -> None:
        mine = [rule for rule in rules if rule.direction in (way, BOTH)]
        out = way == OUT
        self._ways = [_Way(rule, out) for rule in mine]
        self._known: dict[bytes, bytes] = {}
        self.plain = not any(rule.local or rule.remote for rule in mine)
        self.filters: dict[bytes, int] = {}
        for one, rule in zip(self._ways, mine, strict=True):
            self.filters[one.filter] = max(self.filters.get(one.filter, 0), rule.qos)

    def get(self, topic: bytes) -> bytes:
        """Returns the topic at the other end, by the first rule that matches; b"" if there is none."""
        found = self._known.get(topic)
        if found is None:
            found = next((one.mapped(topic) for one in self._ways if one.matches(topic)), b"")
            if len(found) > _LONGEST:
                found = b""
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[topic] = found
        return found


class _Way:
    """One rule in one direction."""

    def __init__(self, rule: Rule, out: bool) -> None:
        before, after = (rule.local, rule.remote) if out else (rule.remote, rule.local)
        self.filter = (before + rule.pattern).encode()
        self._levels = self.filter.split(b"/")
        self._cut = len(before.encode())
        self._after = after.encode()

    def matches(self, topic: bytes) -> bool:
        # `prefix/#` also matches `prefix` alone, which is shorter than what has to be cut off
        return len(topic) >= self._cut and matches(self._levels, topic.split(b"/"))

    def mapped(self, topic: bytes) -> bytes:
        return self._after + topic[self._cut :]


def matches(filter: Sequence[bytes], topic: Sequence[bytes]) -> bool:
    """Whether a filter matches a topic, both as levels."""
    if topic[0].startswith(b"$") and filter[0] in (b"+", b"#"):
        return False
    for number, level in enumerate(filter):
        if level == b"#":
            return True
        if number == len(topic) or level not in (b"+", topic[number]):
            return False
    return len(filter) == len(topic)
