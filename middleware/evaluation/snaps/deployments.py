"""The three ways to publish between sites that SNAPS compares: classic, federated, and agents.

| deployment | servers | a message goes |
| --- | --- | --- |
| classic | one, at a host | from the publisher to it, and from it to each subscriber |
| federated | at each host | from the publisher's server to each subscriber's, by the federation plugin |
| treecast | at each host, with an agent beside it | once into the network, which copies it |

Each begins with an empty lab, and is given one scenario after another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from .scenarios import CLASSIC, FEDERATED, TREECAST, Scenario
from .sites import EXCHANGE, USER, Failed, Sites

_UPSTREAM, _POLICY, _VHOST = "up", "between-sites", "%2F"
# The plugin's defaults: RabbitMQ's reference recommends them for links that lose nothing.
_LINK: Final = {"ack-mode": "on-confirm", "prefetch-count": 1000}
_CREATED: Final = (201, 204)


class Deployment:
    """One of the three. `brokers`: the hosts whose processes a scenario needs."""

    name: ClassVar[str]

    def __init__(self, sites: Sites, center: str) -> None:
        """`center`: the host of the classic server."""
        self.sites = sites
        self.center = center

    def start(self, hosts: Sequence[str]) -> None:
        """Starts what scenarios with these hosts need. Raises Failed."""
        self.sites.start_controller()
        self.sites.start_servers(hosts, {})

    def brokers(self, scenario: Scenario) -> tuple[str, ...]:
        return scenario.hosts

    def server_of(self, host: str) -> str:
        """Returns the host whose server an application at `host` uses."""
        return host

    def exchange(self, scenario: Scenario) -> str:
        """Returns the exchange of a scenario: letters, digits and `-`, for paths and patterns."""
        return f"{EXCHANGE}-" + re.sub(r"[^a-z0-9]+", "-", scenario.name.lower())

    def begin(self, scenario: Scenario) -> None:
        """Makes exchanges, and joins servers."""

    def joined(self, scenario: Scenario) -> bool:
        """Whether messages travel as they are to travel from now on; asked during the warm-up."""
        return True

    def end(self, scenario: Scenario) -> None:
        """Removes what `begin` has made."""

    # --- for subclasses

    def declare(self, host: str, exchange: str) -> None:
        made = {"type": "fanout", "durable": False, "auto_delete": False, "internal": False, "arguments": {}}
        self.put(host, f"exchanges/{_VHOST}/{exchange}", made)

    def put(self, host: str, path: str, body: object) -> None:
        status = self.sites.manage(host, "PUT", path, body)
        if status not in _CREATED:
            raise Failed(f"the server of {host} answers with status {status} to {path}")


class Classic(Deployment):
    """One server for all."""

    name = CLASSIC

    def start(self, hosts: Sequence[str]) -> None:
        self.sites.start_controller()
        self.sites.start_servers([self.center], {})

    def brokers(self, scenario: Scenario) -> tuple[str, ...]:
        return (self.center,)

    def server_of(self, host: str) -> str:
        return self.center

    def begin(self, scenario: Scenario) -> None:
        self.declare(self.center, self.exchange(scenario))

    def end(self, scenario: Scenario) -> None:
        self.sites.manage(self.center, "DELETE", f"exchanges/{_VHOST}/{self.exchange(scenario)}")


class Federated(Deployment):
    """The publisher's server is the upstream of all subscribers' servers, which needs the fewest links."""

    name = FEDERATED

    def begin(self, scenario: Scenario) -> None:
        exchange, publisher = self.exchange(scenario), scenario.publisher
        for host in scenario.hosts:
            self.declare(host, exchange)
        host, port = self.sites.lab.ipv6(publisher), 5672
        value: dict[str, Any] = {"uri": f"amqp://{USER}:{USER}@[{host}]:{port}", **_LINK}
        definition = {"federation-upstream": _UPSTREAM}
        policy = {"pattern": f"^{exchange}$", "apply-to": "exchanges", "definition": definition}
        for one in scenario.hosts[1:]:
            self.put(one, f"parameters/federation-upstream/{_VHOST}/{_UPSTREAM}", {"value": value})
            self.put(one, f"policies/{_VHOST}/{_POLICY}", policy)

    def end(self, scenario: Scenario) -> None:
        manage = self.sites.manage
        for one in scenario.hosts[1:]:
            manage(one, "DELETE", f"policies/{_VHOST}/{_POLICY}")
            manage(one, "DELETE", f"parameters/federation-upstream/{_VHOST}/{_UPSTREAM}")
        for one in scenario.hosts:
            manage(one, "DELETE", f"exchanges/{_VHOST}/{self.exchange(scenario)}")


class Treecast(Deployment):
    """An agent beside each server; trees of replication segments between them."""

    name = TREECAST

    def __init__(self, sites: Sites, center: str) -> None:
        super().__init__(sites, center)
        self._sent = -1  # packets by the tree, at the last look

    def start(self, hosts: Sequence[str]) -> None:
        self.sites.start_coordinator()
        self.sites.start_controller(hosts)
        self.sites.start_servers(hosts, {})
        self.sites.start_agents(hosts)

    def exchange(self, scenario: Scenario) -> str:
        return EXCHANGE

    def begin(self, scenario: Scenario) -> None:
        self._sent = -1

    def joined(self, scenario: Scenario) -> bool:
        """Whether the tree to exactly these sites carries messages."""
        before, self._sent = self._sent, self.sites.by_tree(scenario.publisher, scenario.subscribers)
        return self._sent > before >= 0


DEPLOYMENTS: Final[dict[str, type[Deployment]]] = {one.name: one for one in (Classic, Federated, Treecast)}
