"""The counts of a site's daemons and links, and the conclusion about where executors have read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.fault.hosts.site import Site

RECORD_BYTES = (
    16  # maximum overhead of a record without key and headers, including its share of the batch header
)
CALLS_BYTES = 256 << 10  # traffic between Spark and its executors, and a driver's requests
_COUNTED = {
    "given": 'treecast_face_sent_bytes_total{face="kafka"}',
    "replica": "treecast_relay_local_read_bytes_total",
    "asked": "treecast_relay_proxied_read_bytes_total",
}


@dataclass(frozen=True)
class Counts:
    """Bytes of one host: `given` by its daemon to Kafka clients, `replica` of these from replicas, `asked` of
    leaders for them; `network` counts both directions of its link."""

    given: int
    replica: int
    asked: int
    network: int

    def since(self, before: Counts) -> Counts:
        return Counts(
            self.given - before.given,
            self.replica - before.replica,
            self.asked - before.asked,
            self.network - before.network,
        )


def counted(site: Site) -> dict[str, Counts]:
    """Returns the counts of each host until now."""
    return {host: _of(site, host) for host in site.names}


def _of(site: Site, host: str) -> Counts:
    values = site.daemons[host].metrics()
    found = {name: int(values.get(metric, 0)) for name, metric in _COUNTED.items()}
    carried = site.link(host).look().counters.values()
    return Counts(**found, network=sum(one.sent_bytes for one in carried))


@dataclass
class Read:
    """One read of all rows. `executors`: each host's executor and the number of rows it has read."""

    executors: dict[str, tuple[str, int]]
    sums: dict[str, int]
    counts: dict[str, Counts]
    problems: list[str] = field(default_factory=list)


def read_of(said: dict[str, Any], counts: dict[str, Counts], rows: int, size: int) -> Read:
    """Returns the driver's report and the counts of the same time, with the problems that they show."""
    executors = {host: (str(name), int(count)) for host, (name, count) in said["executors"].items()}
    read = Read(executors, said["sums"], counts)
    wanted = {"count": rows, "total": rows * (rows - 1) // 2, "lowest": 0, "highest": rows - 1}
    if read.sums != wanted:
        read.problems.append(f"of {rows} rows there were read {read.sums}")
    for host in counts:
        read.problems += _elsewhere(read, host, rows, size)
    return read


def _elsewhere(read: Read, host: str, rows: int, size: int) -> list[str]:
    """Checks whether the executor of `host` read elsewhere, or another executor read from this host's
    daemon."""
    executor, count = read.executors.get(host, ("", 0))
    found, problems = read.counts[host], []
    if not count:
        problems.append(f"no executor has read anything at {host}")
    if found.given < count * size:
        problems.append(
            f"executor {executor} at {host} has read {count} rows of {size} bytes, "
            f"but the daemon there gave {found.given} bytes"
        )
    if found.given > count * (size + RECORD_BYTES) + CALLS_BYTES:
        problems.append(f"the daemon at {host} gave {found.given} bytes for {count} rows read there")
    if found.network > CALLS_BYTES + rows * size // 100:
        problems.append(f"{found.network} bytes passed the link of {host}")
    return problems
