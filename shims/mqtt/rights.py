"""The rights of an MQTT client to publish and subscribe: those on topics, which all faces share.

A topic stands under its Kafka name: the right to write `orders.eu` is that to publish to `orders/eu`. A
subscription needs the right to read every topic that its filter can match, because messages are not looked at
one by one:

| filter | needs the right to read |
| --- | --- |
| `orders/eu` | `orders.eu` |
| `orders/+/x` | all that begins with `orders.` |
| `orders/#` | `orders`, and all that begins with `orders.` |
| `#` | everything |
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from treecast.middleware.broker.access import Granted, Identities, Operation, ResourceKind, Use, may_match
from treecast.middleware.model.principal import ANYWHERE, HERE, Principal, Proof
from treecast.middleware.model.topics import TopicName

from . import codec
from .codec import MqttError

_KEPT: Final = 4096  # topics of one connection whose decision is kept
_TOPIC: Final = ResourceKind.TOPIC


# The right that each packet of a client needs on the topics that it names
NEEDED: Final[Mapping[int, Operation | None]] = MappingProxyType(
    {
        codec.CONNECT: Operation.WRITE,  # on the topic of its will, if it has one
        codec.PUBLISH: Operation.WRITE,
        codec.SUBSCRIBE: Operation.READ,
        codec.UNSUBSCRIBE: None,
        codec.PUBACK: None,
        codec.PUBREC: None,
        codec.PUBREL: None,
        codec.PUBCOMP: None,
        codec.PINGREQ: None,
        codec.DISCONNECT: None,
        codec.AUTH: None,
    }
)


class TopicRights:
    """The rights of one connection, decided once for each topic until rules change."""

    def __init__(self, identities: Identities) -> None:
        self.identities = identities
        self.granted = Granted(identities, trail=identities.trail, face="mqtt")
        self._version = identities.version
        self._writable: dict[bytes, Use] = {}

    def belong(self, user: str, address: str, proof: Proof = Proof.PASSWORD) -> None:
        """The client has logged in as a user. `address`: as the limits on log-ins count it."""
        self._writable.clear()
        self.granted.become(Principal(user, proof=proof, address=address or HERE))
        self.identities.logged_in("mqtt", self.granted.principal, proof.value, allowed=True)

    def failed(self, user: str, address: str, reason: str) -> None:
        """A log-in was refused. `user`: who it claimed to be."""
        claimed = Principal(user, proof=Proof.NONE, address=address or HERE)
        self.identities.logged_in("mqtt", claimed, reason, allowed=False)

    def may_publish(self, topic: bytes) -> bool:
        """`topic` has to be a legal name."""
        version = self.identities.version
        if version != self._version or len(self._writable) >= _KEPT:
            self._version = version
            self._writable.clear()
        known = self._writable.get(topic)
        if known is not None:
            known.count += 1
            return True
        name = TopicName.from_mqtt(topic.decode()).spelled()
        if not self.granted.may(Operation.WRITE, _TOPIC, name):
            return False
        self._writable[topic] = self.granted.use(Operation.WRITE, _TOPIC, name)
        return True

    def check_subscribe(self, filter: bytes) -> None:
        """Raises NOT_AUTHORIZED. `filter` has to be a legal one, without the name of a shared group."""
        if self.identities.closed and not may_read(self.granted, filter):
            raise MqttError(codec.NOT_AUTHORIZED, "3.9.3", f"{self.who} may not read all of this filter")

    def refused_publish(self, topic: bytes) -> MqttError:
        shown = topic.decode(errors="replace")
        return MqttError(codec.NOT_AUTHORIZED, "3.3.5", f"{self.who} may not publish to {shown}")

    @property
    def who(self) -> str:
        return self.granted.principal.name


def may_read(granted: Granted, filter: bytes) -> bool:
    """Whether every topic that a filter matches may be read."""
    return may_match(granted, Operation.READ, filter.decode().split("/"), "+", "#")


def may_write(identities: Identities, user: str, topic: bytes) -> bool:
    """Whether a user, who need not be connected, may publish to a topic, as of a will."""
    name = TopicName.from_mqtt(topic.decode()).spelled()
    return rights_of(identities, user).may(Operation.WRITE, _TOPIC, name)


def rights_of(identities: Identities, user: str) -> Granted:
    """Returns the rights of a session's user, who need not be connected."""
    granted = Granted(identities)
    if user:
        granted.become(Principal(user, address=ANYWHERE))
    return granted
