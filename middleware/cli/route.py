"""`treecast route`: the header stack of a notification, the effect of each label, and a picture of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec
import typer

from .options import Json
from .output import CommandError, print_json, print_table

if TYPE_CHECKING:
    from treecast.middleware.routing.network import Network
    from treecast.middleware.routing.virtual.rules import RuleBase
    from treecast.middleware.routing.virtual.stacks import Encoding

app = typer.Typer(
    help="Trees in the header: encode a notification, explain its stack, draw it.", no_args_is_help=True
)

Topology = Annotated[
    str,
    typer.Option(
        "--topology",
        help="A network's name, or fabric, fat-tree:K, jellyfish:SWITCHES:DEGREE, tree:BRANCHES:DEPTH, isp.",
    ),
]
Folder = Annotated[
    Path | None, typer.Option("--topology-dir", help="REPETITA or GraphML files; else topohub is asked.")
]
Publisher = Annotated[str, typer.Option("--from", help="The publisher: a node's name or number.")]
Receivers = Annotated[list[str], typer.Option("--to", help="A receiver; given again, or parted by commas.")]
Strategy = Annotated[str, typer.Option("--strategy", help="Which virtual trees are installed.")]
Rules = Annotated[int, typer.Option("--rules", min=0, help="Rules per switch.")]
EncoderName = Annotated[
    str,
    typer.Option(
        "--encoder", help="ours, or Algorithm 5.1's orders: given, largest, overlap, gain, steepest."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="For strategies and networks that draw.")]


class _Asked(msgspec.Struct, frozen=True):
    """The options shared by all commands."""

    topology: Topology
    publisher: Publisher
    receivers: Receivers
    folder: Folder = None
    strategy: Strategy = "random"
    rules: Rules = 40
    encoder: EncoderName = "ours"
    seed: Seed = 1


def _asking(command: Callable[..., None]) -> Callable[..., None]:
    """Returns a command for typer: the command's first parameter, an `_Asked`, becomes one option per
    field.
    """
    hints = get_type_hints(_Asked, include_extras=True)
    optional = _Asked.__struct_fields__[-len(_Asked.__struct_defaults__) :]
    defaults = dict(zip(optional, _Asked.__struct_defaults__, strict=True))
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name, Parameter.empty), annotation=hint)
        for name, hint in hints.items()
    ]
    own = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for parameter in list(signature(command, eval_str=True).parameters.values())[1:]
    ]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        asked = _Asked(**{name: given.pop(name) for name in hints})
        command(asked, **given)

    shown: Any = called  # mypy does not know __signature__, which typer reads
    shown.__signature__ = Signature([*shared, *own])
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in (*shared, *own)}
    return called


class _Scene:
    """A network, its rules, and one notification on it."""

    def __init__(self, asked: _Asked) -> None:
        from treecast.middleware.routing.network import RoutingError

        try:
            self._make(asked)
        except RoutingError as error:
            raise CommandError(str(error)) from error

    def _make(self, asked: _Asked) -> None:
        from treecast.middleware.evaluation.thesis.encoding import encoder_of
        from treecast.middleware.routing.virtual.stacks import check_encoding, request

        self.network: Network = _network(asked.topology, asked.folder, asked.seed)
        self.source = self.network.node(asked.publisher)
        names = [name for text in asked.receivers for name in text.split(",") if name]
        self.receivers = sorted({self.network.node(name) for name in names})
        wanted = request(self.network, self.source, self.receivers)
        self.rules: RuleBase = _rules(self.network, asked, self.source, self.receivers)
        self.found: Encoding = encoder_of(asked.encoder, self.network, self.rules)(wanted)
        check_encoding(self.found)


# Generated networks: the notation of each, and its number of parameters.
_FORMS = {
    "fabric": "fabric or fabric:PODS:RACKS:PLANES:SPINES:MACHINES, of which the last may be left out",
    "fat-tree": "fat-tree:PORTS",
    "jellyfish": "jellyfish:SWITCHES:DEGREE",
    "tree": "tree:BRANCHES:DEPTH, or tree:BRANCHES:DEPTH:HOSTS",
    "isp": "isp",
}
_SIZES = {"fabric": (0, 5), "fat-tree": (1, 1), "jellyfish": (2, 2), "tree": (2, 3), "isp": (0, 0)}
_EXAMPLES = {
    "fabric": "fabric:8:4",
    "fat-tree": "fat-tree:4",
    "jellyfish": "jellyfish:20:3",
    "tree": "tree:2:3",
    "isp": "isp",
}


def _network(topology: str, folder: Path | None, seed: int) -> Network:
    from random import Random

    from treecast.middleware.evaluation.topologies import load
    from treecast.middleware.routing import topologies

    kind, *numbers = topology.split(":")
    if kind in _FORMS:
        if not all(number.isascii() and number.isdigit() for number in numbers):
            raise CommandError(f"--topology {topology}: expected {_FORMS[kind]}, as in {_EXAMPLES[kind]}")
        sizes = [int(number) for number in numbers]
        least, most = _SIZES[kind]
        if not least <= len(sizes) <= most:
            raise CommandError(f"--topology {topology}: expected {_FORMS[kind]}")
        try:
            if kind == "fabric":
                return topologies.facebook_fabric(*sizes)
            if kind == "fat-tree":
                return topologies.fat_tree(*sizes)
            if kind == "jellyfish":
                return topologies.jellyfish(sizes[0], sizes[1], Random(seed))
            return topologies.k_ary_tree(*sizes) if kind == "tree" else topologies.isp()
        except ValueError as error:
            raise CommandError(f"--topology {topology}: {error}; as in {_EXAMPLES[kind]}") from error
    return load(topology, folder)


def _rules(network: Network, asked: _Asked, source: int, receivers: list[int]) -> RuleBase:
    """Returns a rule base that treats the publisher's receivers as subscribers of half of its notifications
    each.
    """
    from random import Random

    from treecast.middleware.routing.clusters import dense_regions, k_medoids
    from treecast.middleware.routing.virtual.strategies import STRATEGIES, Knowledge, install

    if asked.strategy not in STRATEGIES:
        raise CommandError(f"--strategy {asked.strategy}: expected {', '.join(STRATEGIES)}")
    rng = Random(asked.seed)
    regions = dense_regions(network, k_medoids(network, 4, rng), 0.6)
    knowledge = Knowledge({source: dict.fromkeys(receivers, 0.5)}, regions)
    return install(network, asked.rules, STRATEGIES[asked.strategy], knowledge, rng)


@app.command()
@_asking
def encode(asked: _Asked, json: Json = False) -> None:
    """Prints the stack of a notification: its labels, and its bytes in hexadecimal."""
    from treecast.middleware.wire.label_stack import encode_labels

    scene = _Scene(asked)
    network, found = scene.network, scene.found
    data = encode_labels(found.labels)
    if json:
        print_json(
            {
                "trees": list(found.trees),
                "hops": [network.link_name(link) for link in found.hops],
                "stops": [network.link_name(link) for link in found.stops],
                "labels": found.label_count,
                "links": found.edges.bit_count(),
                "stack": data.hex(),
            }
        )
        return
    counts = f"{len(found.hops)} hops, {len(found.trees)} trees, {len(found.stops)} stops"
    print(f"{counts} on {found.edges.bit_count()} links")
    print(f"{len(data)} bytes: {data.hex(' ', 2)}")


@app.command()
@_asking
def explain(asked: _Asked, json: Json = False) -> None:
    """Prints the labels, the place where each is used, and the load of each link."""
    from treecast.middleware.routing.forwarding import faults
    from treecast.middleware.routing.virtual.explain import explain as explained

    scene = _Scene(asked)
    uses, links, outcome = explained(scene.network, scene.rules, scene.source, scene.found.labels)
    wrong = faults(scene.network, scene.source, scene.receivers, outcome)
    if json:
        print_json(msgspec.to_builtins({"labels": uses, "links": links, "faults": wrong}))
        return
    print_table(
        ("label", "id", "meaning", "used at"),
        [(use.kind, use.number, use.meaning, _some(use.switches)) for use in uses],
        empty="no labels",
    )
    print()
    print_table(
        ("from", "port", "to", "labels", "bytes"),
        [(link.tail, link.port, link.head, link.labels, link.bytes) for link in links],
        empty="no links",
    )
    print()
    count = len(scene.receivers)
    print("\n".join(wrong) if wrong else f"each of {count} receivers gets one copy, nobody else any")


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


@app.command()
@_asking
def draw(
    asked: _Asked, out: Annotated[Path, typer.Option("--out", help="A file that ends in .svg or .png.")]
) -> None:
    """Draws the network with tree, hop and stop edges, as SVG or PNG."""
    from treecast.middleware.evaluation.drawing import draw as draw_picture
    from treecast.middleware.routing.network import RoutingError

    scene = _Scene(asked)
    labels = scene.found.label_count
    title = f"{asked.topology}: {asked.strategy}, {asked.rules} rules per switch, {labels} labels"
    try:
        draw_picture(scene.network, scene.rules, scene.source, scene.receivers, scene.found, out, title)
    except RoutingError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"--out {out}: {error.strerror}") from error
    print(out)
