"""The groups that a host is a member of, who is told of them, and the probes that show whom one reaches.

A group is a state's. What carries to it is ip-multicast in STARE's form, which with `--carrier stare` also
tells the switch beside this host which groups it wants; or labels, which name their receivers.
"""

from __future__ import annotations

from msgspec.structs import replace

from treecast.middleware.routing.network import Network
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.wire import stare
from treecast.middleware.wire.segment import KeyRing, Kind, control, encode
from treecast.middleware.wire.segment_bodies import Probe

from .carriers.carrier import CarrierState
from .carriers.labels import NAME as LABELS
from .carriers.stare import NAME as STARE
from .carriers.stare import Stare
from .core.timing import Random
from .ways import Ways

IP_MULTICAST = "ip-multicast"


class Groups:
    """`subscribe`: switches of STARE's are told. All calls come from the loop."""

    def __init__(self, ways: Ways, random: Random, *, subscribe: bool) -> None:
        self._multicast = ways.multicast
        self._labels = ways.labels
        self._stare: Stare | None = None
        if subscribe and ways.group_udp is not None:
            self._stare = Stare(ways.interface, ways.udp, random)
        self.subscribes = self._stare is not None
        self.carrier = LABELS if self._labels is not None else STARE if self.subscribes else IP_MULTICAST

    def join(self, state_id: int) -> bool:
        """Becomes a member; whether a switch is to be told. OSError where it is refused."""
        self._multicast.join(state_id)
        if self._stare is not None:
            self._stare.join(state_id)
        return self.subscribes

    def leave(self, state_id: int) -> bool:
        self._multicast.leave(state_id)
        if self._stare is not None:
            self._stare.leave(state_id)
        return self.subscribes

    def state(self) -> CarrierState:
        found = self._multicast.state()
        return found if self._stare is None else replace(found, name=STARE)

    # --- labels

    def set_name(self, host: int, name: str | None) -> None:
        """What the network calls a host; None: it has left. Of no use but to labels."""
        if self._labels is not None:
            self._labels.set_name(host, name)

    def set_trees(self, version: int, network: Network, rules: RuleBase) -> None:
        """ValueError where labels are not used here, or for an older version."""
        if self._labels is None:
            raise ValueError("labels carry nothing here: start with --carrier labels")
        self._labels.set_rules(version, network, rules)

    def observed(self) -> dict[tuple[str, ...], int]:
        """Packets by the hosts that they were for. ValueError where labels are not used here."""
        if self._labels is None:
            raise ValueError("labels carry nothing here: start with --carrier labels")
        return self._labels.observed()

    # --- switches of STARE's

    @property
    def registered(self) -> bool:
        """Whether one has acknowledged a group that this host wants."""
        return self._stare is not None and self._stare.registered

    def subscribe(self, acks: list[stare.StareHeader], now: float) -> None:
        """What the switch has said, which is taken out of the list, and what it is to be told."""
        assert self._stare is not None
        for header in acks:
            self._stare.acknowledged(header, now)
        acks.clear()
        self._stare.work(now)

    def next_deadline(self) -> float:
        """When `subscribe` has something to do."""
        assert self._stare is not None
        return self._stare.next_deadline()

    def close(self) -> None:
        if self._stare is not None:
            self._stare.close()


def encode_probe(host: int, state_id: int, nonce: int, keys: KeyRing) -> bytes:
    """The segment by which `host` asks who is reached."""
    return encode(control(Kind.PROBE, host, 0, 0, host, Probe(state_id, nonce).encode()), keys)
