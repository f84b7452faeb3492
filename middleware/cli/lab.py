"""`treecast lab`: hosts, routers, bridges and P4 switches as network namespaces of this machine."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json
from .output import CommandError, print_json, print_table

if TYPE_CHECKING:
    from treecast.middleware.dataplane.lab.lab import Lab

app = typer.Typer(
    no_args_is_help=True,
    help="Hosts, routers, bridges and P4 switches as network namespaces of this machine. Needs root.",
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The lab's TOML file; docs/lab.md describes it.")]


@app.command()
def up(
    file: File,
    seed: Annotated[
        int, typer.Option("--seed", help="Of the relays' luck: the same seed, the same losses.")
    ] = 1,
    json: Json = False,
) -> None:
    """Builds a lab; it stays until `treecast lab down FILE`."""
    _need_pyroute2()
    from treecast.middleware.dataplane.lab.description import DescriptionError, parse
    from treecast.middleware.dataplane.lab.lab import Lab, LabError

    try:
        lab = Lab.up(parse(_text(file), str(file)), file=file, seed=seed)
    except (DescriptionError, LabError) as error:
        raise CommandError(str(error)) from error
    if json:
        print_json({"id": lab.id, "nodes": _rows(lab), "links": _links(lab), "switches": _switches(lab)})
        return
    print_table(
        ("node", "kind", "interface", "MAC", "IPv4", "IPv6", "namespace"),
        [tuple(row.values()) for row in _rows(lab)],
        empty="",
    )
    for switch in _switches(lab):
        print(f"\n{switch['node']}: P4Runtime at {switch['p4runtime']}")
    print(f"\nrun commands with `treecast lab run {file} HOST -- COMMAND`,")
    print(f"end it with `treecast lab down {file}`")


def _need_pyroute2() -> None:
    try:
        import pyroute2  # noqa: F401
    except ImportError as error:
        raise CommandError("labs need pyroute2; install it with `pip install 'treecast[lab]'`") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error


def _rows(lab: Lab) -> list[dict[str, Any]]:
    """Returns one row for each interface with an address, and one for each bridge."""
    lab_of = lab.plan.description
    kinds = {**dict.fromkeys(lab_of.hosts, "host"), **dict.fromkeys(lab_of.routers, "router")}
    kinds |= dict.fromkeys(lab_of.switches, "switch")
    rows = []
    for node in lab_of.nodes:
        found = [(i.name, i.mac, str(i.ipv4), str(i.ipv6)) for i in lab.plan.of(node)] or [("-",) * 4]
        for name, mac, ipv4, ipv6 in found:
            rows.append(
                {
                    "node": node,
                    "kind": kinds.get(node, "bridge"),
                    "interface": name,
                    "mac": mac,
                    "ipv4": ipv4,
                    "ipv6": ipv6,
                    "namespace": lab.namespace(node),
                }
            )
    return rows


def _links(lab: Lab) -> list[tuple[str, str]]:
    """Returns the links in the file's order, which determines the ports of switches."""
    return [link.between for link in lab.plan.description.links]


def _switches(lab: Lab) -> list[dict[str, Any]]:
    """Returns, for each P4 switch, the controllers' address and the destination of each port."""
    rows: dict[str, dict[str, Any]] = {
        name: {"node": name, "p4runtime": lab.p4runtime(name), "ports": []}
        for name in lab.plan.description.switches
    }
    for ends in lab.plan.ends:  # ports are numbered in the order of links
        for end, peer in (ends, ends[::-1]):
            if end.node in rows:
                ports = rows[end.node]["ports"]
                ports.append({"port": len(ports) + 1, "interface": end.interface, "to": peer.node})
    return list(rows.values())


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    file: File,
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host, router or bridge of the lab.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run there.")],
) -> None:
    """Runs a command in a host of a running lab and exits with the command's exit code."""
    from treecast.middleware.dataplane.lab import namespaces, state
    from treecast.middleware.dataplane.lab.lab import LabError, replace_by_command, require_root

    try:
        require_root()
    except LabError as error:
        raise CommandError(str(error)) from error
    lab_id = state.kept_id(file)
    prefix = state.namespace(lab_id, "")
    nodes = [name.removeprefix(prefix) for name in namespaces.listed(prefix)]
    if not nodes:
        raise CommandError(f"the lab of {file} is not up; build it with `treecast lab up {file}`")
    if host not in nodes:
        raise CommandError(f"there is no {host!r} in the lab of {file}; there are {', '.join(nodes)}")
    sys.stdout.flush()
    raise typer.Exit(replace_by_command(lab_id, host, command))


Share = Annotated[str | None, typer.Option(metavar="SHARE", help="As 1% or 0.01.")]


@app.command()
def link(
    file: File,
    one: Annotated[str, typer.Argument(metavar="ONE", help="The link's ends, as the file names them.")],
    other: Annotated[str, typer.Argument(metavar="OTHER")],
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="As 10ms.")] = None,
    loss: Share = None,
    reorder: Share = None,
    duplicate: Share = None,
    cut: Annotated[
        bool | None, typer.Option("--cut/--heal", help="From now on nothing passes; or again.")
    ] = None,
    forget: Annotated[
        bool | None,
        typer.Option("--forget/--learn", help="From now on no UDP to multicast groups passes; or again."),
    ] = None,
    direction: Annotated[
        str, typer.Option(metavar="forward|backward|both", help="`forward` is from ONE to OTHER.")
    ] = "both",
    json: Json = False,
) -> None:
    """Changes the impairments of a relayed link in a running lab, and shows its effects on frames."""
    from treecast.middleware.dataplane.lab import units
    from treecast.middleware.dataplane.lab.messages import RelayError, as_direction, ask_for_change

    try:
        wanted: dict[str, float | bool] = {} if delay is None else {"delay": units.duration(delay)}
        shares = {"loss": loss, "reorder": reorder, "duplicate": duplicate}
        wanted |= {name: units.share(text) for name, text in shares.items() if text is not None}
        wanted |= {} if cut is None else {"cut": cut}
        wanted |= {} if forget is None else {"forgets": forget}
        answer = ask_for_change(_relay(file, one, other), as_direction(direction), wanted)
    except (ValueError, RelayError) as error:
        raise CommandError(str(error)) from error
    rows = [{"direction": name, **asdict(counters)} for name, counters in answer.counters.items()]
    if json:
        print_json({"directions": rows, "missed": answer.missed, "refused": answer.refused})
    else:
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows], empty="")


def _relay(file: Path, one: str, other: str) -> Path:
    """Returns the control socket of a link in a running lab."""
    from treecast.middleware.dataplane.lab import state

    known = state.read(state.kept_id(file))
    if known is None:
        raise CommandError(f"the lab of {file} is not up; build it with `treecast lab up {file}`")
    number = known.relays.get(f"{one}={other}")
    if number is None:
        there = (
            ", ".join(name.replace("=", " ") for name in known.relays) or "none; give links `relay = true`"
        )
        raise CommandError(f"there is no relayed link {one} {other} in the lab of {file}; there are: {there}")
    return state.relay_socket(known.id, number)


@app.command()
def down(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The file it was built from; without it, only leftovers go."),
    ] = None,
    json: Json = False,
) -> None:
    """Ends a lab's processes and removes it, together with leftovers of labs of dead processes."""
    from treecast.middleware.dataplane.lab import state
    from treecast.middleware.dataplane.lab.lab import LabError, require_root

    try:
        require_root()
    except LabError as error:
        raise CommandError(str(error)) from error
    removed = state.sweep()
    if file is not None:
        lab_id = state.kept_id(file)
        if state.remove(lab_id):
            removed.append(lab_id)
        elif lab_id not in removed:
            raise CommandError(f"the lab of {file} is not up; nothing to remove")
    if json:
        print_json({"removed": removed})
    else:
        print(f"removed {len(removed)} lab{'' if len(removed) == 1 else 's'}")
