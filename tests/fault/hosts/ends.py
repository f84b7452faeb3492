"""The end of a scenario: every host has read all acknowledged records, and every account closes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .ledger import Ledger, differences, merged
from .result import Result
from .site import Amiss, Consuming, HostDaemon, Producing, Site, wait_for

SETTLE_S = 180.0
ACCOUNT_S = 60.0
LOAD = "load"  # prefix of the topics' names
_TOTALS = ("addressed", "live", "repaired", "replayed", "filtered", "expired", "refused", "outstanding")


def end(
    producers: Sequence[Producing],
    consumers: Sequence[Consuming],
    result: Result,
    patience: float = SETTLE_S,
) -> Ledger:
    """Waits for all acknowledgements, then for all consumers, and compares their ledgers."""
    for producer in producers:
        producer.close_input()
    acknowledged = merged([producer.result(patience) for producer in producers])
    result.problems += acknowledged.problems
    compare(acknowledged, consumers, result, patience)
    result.row("records acknowledged", acknowledged.count)
    return acknowledged


def compare(
    acknowledged: Ledger, consumers: Sequence[Consuming], result: Result, patience: float = SETTLE_S
) -> None:
    """Every consumer must read exactly the acknowledged records."""
    for consumer in consumers:
        consumer.tell(f"expect {acknowledged.count}")
    for consumer in consumers:
        try:
            result.problems += differences(acknowledged, consumer.result(patience), consumer.host)
        except Amiss as error:
            result.problems.append(f"{error}; its host receives {_received(consumer)}")


def _received(consumer: Consuming) -> list[str]:
    """Returns the positions of the streams that the consumer's host receives."""
    streams = consumer.site.daemons[consumer.host].treecast("streams")
    return [
        f"{stream['name']} of {stream['origin']}: {stream['state']} {stream['next']} of {stream['end']}"
        for stream in streams
        if not stream["outgoing"]
    ]


def account(
    site: Site,
    result: Result,
    without: tuple[str, ...] = (),
    addressed: int | None = None,
    running: str = "",
) -> None:
    """Checks `treecast streams` at every origin: nothing outstanding, and consistent sums.

    `addressed`: the number of records of the load addressed to all hosts together, counted over all restarts.
    Each of them must be delivered. Streams whose names begin with `running` are left out.
    """
    totals = dict.fromkeys(_TOTALS, 0)
    said = delivered = 0
    for daemon in site.daemons.values():
        if not daemon.running:
            continue
        for row in closed_rows(daemon, result, without, running):
            for name in _TOTALS:
                totals[name] += count(row[name])
            if row["stream"].startswith(LOAD):
                said += row["addressed"]
                delivered += row["live"] + row["repaired"] + row["replayed"]
            settled = sum(count(row[name]) for name in _TOTALS[1:])
            if settled != row["addressed"]:
                result.problems.append(f"{daemon.host}: the sum of {row} is {settled}")
    if addressed is not None and (said, delivered) != (addressed, addressed):
        result.problems.append(
            f"of {addressed:,} records {said:,} are accounted for, {delivered:,} as delivered"
        )
    result.data["account"] = totals
    for name, value in totals.items():
        result.row(f"account: {name}", value)


def closed_rows(
    daemon: HostDaemon, result: Result, without: tuple[str, ...], running: str = ""
) -> list[dict[str, Any]]:
    """Returns the rows of one origin once nothing is outstanding; adds a problem if the backlog stops
    shrinking. Leaves out streams whose names begin with `running`."""
    rows: list[dict[str, Any]] = []
    least = [-1]

    def nearer() -> bool:
        """Returns whether the account is closed, or less is outstanding than ever before."""
        left = sum(row["outstanding"] for row in look())
        if left and 0 <= least[0] <= left:
            return False
        least[0] = left
        return True

    def look() -> list[dict[str, Any]]:
        streams = daemon.treecast("streams")
        rows[:] = [
            {"stream": stream["name"], **row}
            for stream in streams
            for row in stream["accounts"]
            if row["host"] not in without and not (running and stream["name"].startswith(running))
        ]
        return rows

    try:
        while least[0]:
            wait_for(nearer, f"the accounts of {daemon.host} to close", ACCOUNT_S, 0.5)
    except Amiss as error:
        result.problems.append(f"{error}: {[row for row in rows if row['outstanding']][:3]}")
    return rows


def count(value: Any) -> int:
    """Sums a total, or totals by reason."""
    return sum(value.values()) if isinstance(value, dict) else int(value)
