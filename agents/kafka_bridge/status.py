"""The status of the agent that joins Kafka clusters, beyond that of all agents."""

from __future__ import annotations

from treecast.agents.common.status import AgentStatus

from .way import WayStatus


class BridgeStatus(AgentStatus, frozen=True, kw_only=True):
    """`ways`: by FROM->TO. `fetched_bytes`: all that brokers have sent in answer to fetches.

    `cuts`: times that a source has lost records which were carried. `missed`: offsets that a source had
    removed before they were read.
    """

    ways: dict[str, WayStatus]
    fetched_bytes: int
    cuts: int
    missed: int
