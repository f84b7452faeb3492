"""The carriers of a host that send by a network controller's rules, as its calls see them.

Daemons and agents answer the controller's two calls by these functions (`proto/treecast/v1/daemon.proto`).
"""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.fabric.carriers.registry import Carriers
from treecast.middleware.model.errors import Fault, TreecastError


def set_rules(carriers: Carriers, request: pb.SetRulesRequest) -> int:
    """Sets the rules of a carrier and returns their version. Raises INVALID_REQUEST or POLICY_VIOLATION."""
    found = [one for one in carriers.ruled() if one.name == request.carrier]
    if not found:
        raise TreecastError(
            Fault.POLICY_VIOLATION,
            f"{request.carrier} sends by no rules here: start with --carrier {request.carrier}",
        )
    try:
        rules = found[0].read_rules(request.version, request.rules)
    except ValueError as error:
        raise TreecastError(Fault.INVALID_REQUEST, str(error)) from error
    try:
        found[0].learn(rules)
    except ValueError as error:
        raise TreecastError(Fault.POLICY_VIOLATION, str(error)) from error
    return request.version


def receiver_sets(carriers: Carriers) -> Sequence[pb.ReceiverSet]:
    """Returns the sets of hosts that this host has sent to, or would send to, by carriers that follow rules.
    Raises POLICY_VIOLATION if it uses none.
    """
    counting = carriers.ruled()
    if not counting:
        raise TreecastError(
            Fault.POLICY_VIOLATION, "no trees are laid for this host: start with --carrier labels or srv6"
        )
    observed: dict[tuple[str, ...], int] = {}
    sizes: dict[tuple[str, ...], int] = {}
    for carrier in counting:
        for hosts, count in carrier.observed().items():
            observed[hosts] = observed.get(hosts, 0) + count
        for hosts, size in carrier.observed_bytes().items():
            sizes[hosts] = sizes.get(hosts, 0) + size
    counts = sorted(observed.items())
    return [pb.ReceiverSet(hosts=hosts, packets=n, bytes=sizes.get(hosts, 0)) for hosts, n in counts]
