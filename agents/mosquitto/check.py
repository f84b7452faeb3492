"""The checks of `treecast agent doctor` at a broker of MQTT: log-in, version, rights, rules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from treecast.agents.common.settings import AgentSettings

from .connection import ConnectionLost
from .lock import look
from .session import LogIn
from .settings import MosquittoSettings
from .topics import IN, OUT, TopicMap

Found = tuple[str, str, str]  # what was checked; ok, slow or bad; the detail


def check_broker(agent: AgentSettings, settings: MosquittoSettings) -> Iterator[Found]:
    """Yields what was found at the broker."""
    out = TopicMap(settings.rules, OUT)
    cluster = agent.cluster_id[:8]
    log_in = LogIn("", user=settings.user, password=settings.secret)
    try:
        found = asyncio.run(
            look(settings.server, settings.tls_context(), log_in, cluster, out.filters, falls_back=True)
        )
    except ConnectionLost as error:
        yield "broker", "bad", f"{settings.address}: {error}"
        return
    if found.speaks == 5:
        yield "broker", "ok", f"MQTT 5 at {settings.address}"
    else:
        yield (
            "broker",
            "slow",
            f"MQTT 3.1.1 at {settings.address}: properties do not cross, nor does the loop guard",
        )
    if found.refused:
        yield (
            "rights",
            "bad",
            f"the broker does not give out {found.refused}: allow the agent's user to read it",
        )
    if found.holder not in ("", agent.name):
        yield "lock", "bad", f"agent {found.holder} is connected to this broker: one serves all its clients"
    yield from _rules(settings, out)


def _rules(settings: MosquittoSettings, out: TopicMap) -> Iterator[Found]:
    for filters, way in ((out.filters, "out"), (TopicMap(settings.rules, IN).filters, "in")):
        if filters:
            yield f"topics {way}", "ok", ", ".join(sorted(one.decode() for one in filters))
    if lossy := [str(rule) for rule in settings.rules if rule.qos == 0]:
        yield "qos", "slow", f"messages of QoS 0 are lost while one side is away: {', '.join(lossy)}"
