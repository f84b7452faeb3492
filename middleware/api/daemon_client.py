"""A thin, blocking client of the daemon's admin service (`proto/treecast/v1/daemon.proto`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from .discovery import Endpoint, find_control
from .join_token import JoinToken
from .rpc import Caller
from .v1 import daemon_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["Daemon"]
CALL_SECONDS = 30.0


class DaemonClient:
    """One connection. Every method raises `TreecastError` for a refusal, or `rpc.Unreachable`."""

    def __init__(
        self,
        endpoint: Endpoint | str | None = None,
        *,
        timeout: float = CALL_SECONDS,
        token: JoinToken | None = None,
        trust: Path | None = None,
    ) -> None:
        """`endpoint`: HOST:PORT, or a discovered one; None looks for this host's daemon. `token` signs
        changes from another host. `trust`: a folder with a host's certificate, for the address of a secured
        host; a Unix socket needs none.
        """
        self.endpoint = find_control() if endpoint is None else endpoint
        target, secured = _target(self.endpoint), None
        if trust is not None and not target.startswith("unix:"):
            from .trust import caller_credentials  # here: it loads `cryptography`

            secured = caller_credentials(trust)
        self._caller = Caller(SERVICE, target, timeout, token, secured)

    def status(self) -> pb.StatusResponse:
        return cast(pb.StatusResponse, self._caller.call("Status", pb.StatusRequest()))

    def fabric(self) -> pb.FabricResponse:
        return cast(pb.FabricResponse, self._caller.call("Fabric", pb.FabricRequest()))

    def list_streams(self) -> Sequence[pb.StreamStatus]:
        return cast(pb.ListStreamsResponse, self._caller.call("ListStreams", pb.ListStreamsRequest())).streams

    def streams(self) -> pb.ListStreamsResponse:
        """Returns streams and troubled partitions together."""
        return cast(pb.ListStreamsResponse, self._caller.call("ListStreams", pb.ListStreamsRequest()))

    def list_events(self, after: int = 0, last: int = 0) -> pb.ListEventsResponse:
        """Returns the latest `last` events of the cluster, or else events after the number `after`."""
        request = pb.ListEventsRequest(after=after, last=last)
        return cast(pb.ListEventsResponse, self._caller.call("ListEvents", request))

    def explain(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        return cast(pb.ExplainResponse, self._caller.call("Explain", request))

    def list_partitions(self, topic: str = "") -> Sequence[pb.PartitionStanding]:
        answer = self._caller.call("ListPartitions", pb.ListPartitionsRequest(topic=topic))
        return cast(pb.ListPartitionsResponse, answer).partitions

    def export_view(self) -> pb.ExportViewResponse:
        """Returns the daemon's whole view of the coordinator, in one piece."""
        whole = pb.ExportViewResponse(more=True)
        while whole.more:
            request = pb.ExportViewRequest(first=len(whole.changes))
            page = cast(pb.ExportViewResponse, self._caller.call("ExportView", request))
            if whole.changes and page.revision != whole.revision:
                whole = pb.ExportViewResponse(more=True)  # changed meanwhile: restart from the beginning
                continue
            changes = [*whole.changes, *page.changes]
            whole = pb.ExportViewResponse(
                cluster_id=page.cluster_id,
                revision=page.revision,
                changes=changes,
                more=page.more,
                history=page.history,
            )
        return whole

    def promote_partition(self, request: pb.PromotePartitionRequest) -> pb.PromotePartitionResponse:
        return cast(pb.PromotePartitionResponse, self._caller.call("PromotePartition", request))

    def rebuild_partition(self, request: pb.RebuildPartitionRequest) -> pb.RebuildPartitionResponse:
        return cast(pb.RebuildPartitionResponse, self._caller.call("RebuildPartition", request))

    def set_rules(self, carrier: str, version: int, rules: bytes) -> int:
        """Sets the rules by which a carrier sends. Returns the version that the daemon now uses."""
        request = pb.SetRulesRequest(carrier=carrier, version=version, rules=rules)
        return cast(pb.SetRulesResponse, self._caller.call("SetRules", request)).version

    def list_receiver_sets(self) -> Sequence[pb.ReceiverSet]:
        """Returns the sets of hosts that the daemon sends to by carriers that follow rules."""
        answer = self._caller.call("ListReceiverSets", pb.ListReceiverSetsRequest())
        return cast(pb.ListReceiverSetsResponse, answer).sets

    def list_wishes(self) -> Sequence[pb.TopicWish]:
        """Returns what the daemon's host wants of other hosts' messages."""
        answer = self._caller.call("ListWishes", pb.ListWishesRequest())
        return cast(pb.ListWishesResponse, answer).wishes

    # --- topics

    def list_topics(self) -> Sequence[pb.Topic]:
        return cast(pb.ListTopicsResponse, self._caller.call("ListTopics", pb.ListTopicsRequest())).topics

    def describe_topic(self, name: str) -> pb.DescribeTopicResponse:
        answer = self._caller.call("DescribeTopic", pb.DescribeTopicRequest(name=name))
        return cast(pb.DescribeTopicResponse, answer)

    def create_topic(
        self,
        name: str,
        partitions: int = 0,
        config: Mapping[str, str] | None = None,
        leaders: Sequence[str] = (),
    ) -> pb.Topic:
        """Creates a topic. `partitions` 0 means the daemon's default. `leaders`: host names, one for all
        partitions or one each.
        """
        request = pb.CreateTopicRequest(
            name=name, partitions=partitions, config=dict(config or {}), leaders=leaders
        )
        return cast(pb.CreateTopicResponse, self._caller.call("CreateTopic", request)).topic

    def delete_topic(self, name: str) -> pb.Topic:
        answer = self._caller.call("DeleteTopic", pb.DeleteTopicRequest(name=name))
        return cast(pb.DeleteTopicResponse, answer).topic

    def alter_topic(self, name: str, set: Mapping[str, str], unset: Sequence[str] = ()) -> pb.Topic:
        request = pb.AlterTopicRequest(name=name, set=dict(set), unset=list(unset))
        return cast(pb.AlterTopicResponse, self._caller.call("AlterTopic", request)).topic

    def create_partitions(self, name: str, total: int) -> pb.Topic:
        request = pb.CreatePartitionsRequest(name=name, total=total)
        return cast(pb.CreatePartitionsResponse, self._caller.call("CreatePartitions", request)).topic

    # --- groups

    def list_groups(self) -> Sequence[pb.Group]:
        return cast(pb.ListGroupsResponse, self._caller.call("ListGroups", pb.ListGroupsRequest())).groups

    def describe_group(self, group_id: str) -> pb.DescribeGroupResponse:
        answer = self._caller.call("DescribeGroup", pb.DescribeGroupRequest(group_id=group_id))
        return cast(pb.DescribeGroupResponse, answer)

    def delete_group(self, group_id: str) -> None:
        self._caller.call("DeleteGroup", pb.DeleteGroupRequest(group_id=group_id))

    def reset_group(self, request: pb.ResetGroupRequest) -> pb.ResetGroupResponse:
        return cast(pb.ResetGroupResponse, self._caller.call("ResetGroup", request))

    def close(self) -> None:
        self._caller.close()

    def __enter__(self) -> DaemonClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _target(endpoint: Endpoint | str) -> str:
    if isinstance(endpoint, str):
        return endpoint
    return f"unix:{endpoint.socket}" if endpoint.socket else str(endpoint.address)
