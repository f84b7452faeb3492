"""Troubles of the paths to other hosts, in words for an operator of the network."""

from __future__ import annotations

from collections.abc import Callable

from treecast.middleware.fabric.core.path_size import LEAST
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.origin import Origin
from treecast.middleware.fabric.paths import NarrowPath

Name = Callable[[int], str]  # of a host
_MOST_STREAMS = 3  # that are named


def path_troubles(fabric: Fabric, name: Name) -> list[str]:
    """Returns a sentence for each path that carries less than its ends, and for each host at which nothing
    that is sent again arrives."""
    narrow = {path.host: path for path in fabric.paths.narrow()}
    found = [_narrow(path, name(path.host)) for path in narrow.values()]
    lost: dict[int, list[str]] = {}
    for origin in fabric.origins():
        for host in origin.in_vain:
            lost.setdefault(host, []).append(origin.name)
    return [*found, *[_in_vain(name(host), streams) for host, streams in lost.items() if host not in narrow]]


def why_short(origin: Origin, fabric: Fabric, name: Name) -> str:
    """Returns why a stream's segments are shorter than this host's interface allows; empty if it is not for a
    path."""
    if origin.sender.mtu >= fabric.stream_settings.mtu:
        return ""
    receivers = {peer.host for peer in origin.sender.peers}
    narrow = [path for path in fabric.paths.narrow() if path.host in receivers and path.size]
    if not narrow:
        return ""
    hosts = ", ".join(sorted(name(path.host) for path in narrow))
    return f"in packets of {min(path.size for path in narrow):,} bytes: longer ones do not arrive at {hosts}"


def _narrow(path: NarrowPath, host: str) -> str:
    if not path.size:
        return (
            f"host {host} is connected, but UDP packets of {LEAST:,} bytes to it do not arrive: open UDP of"
            f" the --fabric port to it, and give all links on the way an MTU of at least {LEAST:,}"
        )
    return (
        f"packets longer than {path.size:,} bytes do not arrive at host {host}, though both ends have an MTU"
        f" of {path.most:,}: messages go there in shorter packets. Set the MTU of the links and switch ports"
        f" on the way to {path.most:,}, or start the host behind the narrow link with --mtu {path.size}"
    )


def _in_vain(host: str, streams: list[str]) -> str:
    more = f" and {len(streams) - _MOST_STREAMS} more" if len(streams) > _MOST_STREAMS else ""
    named = ", ".join(sorted(streams)[:_MOST_STREAMS])
    return (
        f"host {host} reports what it lacks, but nothing that is sent to it again arrives ({named}{more}): it"
        " is tried again every few seconds. Look for drops on the way to it: `ip -s link`, counters of its"
        " switch port"
    )
