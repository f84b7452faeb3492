"""`treecast p4`: checks P4 programs, runs them on vectors, and runs them as a switch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json
from .output import CommandError, print_json, print_pairs, print_table

if TYPE_CHECKING:
    from finsy.proto import p4i

    from treecast.middleware.dataplane.p4 import Problem, Program, Report

FAILED = 1

app = typer.Typer(
    no_args_is_help=True, help="P4_16 programs for v1model: checked, run on vectors, run as a switch."
)

ProgramFile = Annotated[Path, typer.Argument(metavar="X.p4", help="The program.")]
Folders = Annotated[
    list[Path] | None, typer.Option("--include", "-I", metavar="DIR", help="Where includes are looked for.")
]
Defines = Annotated[
    list[str] | None, typer.Option("--define", "-D", metavar="NAME[=VALUE]", help="As #define would.")
]


@app.command()
def check(
    program: ProgramFile,
    include: Folders = None,
    define: Defines = None,
    p4info: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Writes P4Info there, in its text form.")
    ] = None,
    device_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Writes the device config for P4Runtime, with all included files."),
    ] = None,
    json: Json = False,
) -> None:
    """Loads a program, and shows its objects as control planes see them. Exit code 1 if it is refused."""
    loaded = _load(program, include, define)
    info = _p4info(loaded)
    if p4info is not None:
        from treecast.middleware.dataplane.p4 import to_text

        _write(p4info, to_text(info).encode())
    if device_config is not None:
        _write(device_config, _config(program, loaded, include, define))
    rows = list(_rows(info))
    if json:
        objects = [dict(zip(("kind", "name", "id", "detail"), row, strict=True)) for row in rows]
        print_json({"program": str(program), "objects": objects, "warnings": list(loaded.warnings)})
        return
    for warning in loaded.warnings:
        print(warning, file=sys.stderr)
    shown = [(kind, name, f"{number:#010x}", what) for kind, name, number, what in rows]
    print_table(("kind", "name", "id", "detail"), shown, empty=f"{program} shows control planes nothing")


def _load(program: Path, folders: list[Path] | None, define: list[str] | None) -> Program:
    """Returns the program, or prints its errors on standard error as a compiler does."""
    from treecast.middleware.dataplane.p4 import P4Error
    from treecast.middleware.dataplane.p4files import load_file

    try:
        return load_file(program, folders=folders or (), defines=_defined(define))
    except P4Error as error:
        print(error, file=sys.stderr)
        count = len(error.diagnostics)
        print(f"{program} is refused: {count} error{'' if count == 1 else 's'}", file=sys.stderr)
        raise typer.Exit(FAILED) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{program} cannot be read: {error}") from error


def _config(program: Path, loaded: Program, folders: list[Path] | None, define: list[str] | None) -> bytes:
    """Returns the program with all its includes, in the form for a switch."""
    from treecast.middleware.dataplane.p4files import bundle_file

    return bundle_file(program, loaded, folders=folders or (), defines=_defined(define)).encode()


def _defined(define: list[str] | None) -> dict[str, str]:
    """Parses defines; `-D NAME` defines 1, as for a C compiler."""
    pairs = (one.partition("=") for one in define or ())
    return {name: value if given else "1" for name, given, value in pairs}


def _p4info(loaded: Program) -> p4i.P4Info:
    from treecast.middleware.dataplane.p4 import P4Error, build_p4info

    try:
        return build_p4info(loaded)
    except P4Error as error:
        print(error, file=sys.stderr)
        raise typer.Exit(FAILED) from error


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error}") from error


Row = tuple[str, str, int, str]


def _rows(info: p4i.P4Info) -> list[Row]:
    """Returns everything with an identifier: kind, name, identifier, description."""
    actions = {action.preamble.id: action.preamble.alias for action in info.actions}
    rows: list[Row] = []

    def add(kind: str, preamble: p4i.Preamble, what: str) -> None:
        rows.append((kind, preamble.name, preamble.id, what))

    for table in info.tables:
        keys = ", ".join(f"{field.name} {_kind(field)}/{field.bitwidth}" for field in table.match_fields)
        does = ", ".join(actions[reference.id] for reference in table.action_refs)
        add("table", table.preamble, f"[{keys}] {does}; size {table.size}{_extras(table)}")
    for action in info.actions:
        add(
            "action", action.preamble, ", ".join(f"{one.name}/{one.bitwidth}" for one in action.params) or "-"
        )
    for profile in info.action_profiles:
        kind = "action selector" if profile.with_selector else "action profile"
        add(kind, profile.preamble, f"size {profile.size}")
    for counter in info.counters:
        add("counter", counter.preamble, f"{counter.size} cells")
    for direct in info.direct_counters:
        add("direct counter", direct.preamble, "one for each entry")
    for meter in info.meters:
        add("meter", meter.preamble, f"{meter.size} cells")
    for metered in info.direct_meters:
        add("direct meter", metered.preamble, "one for each entry")
    for register in info.registers:
        add("register", register.preamble, f"{register.size} cells of {_type(register.type_spec)}")
    for value_set in info.value_sets:
        add("value set", value_set.preamble, f"size {value_set.size}")
    for digest in info.digests:
        add("digest", digest.preamble, _type(digest.type_spec))
    for header in info.controller_packet_metadata:
        fields = ", ".join(f"{one.name}/{one.bitwidth}" for one in header.metadata)
        add("packet header", header.preamble, fields)
    return rows


def _kind(field: p4i.MatchField) -> str:
    from finsy.proto import p4i

    return p4i.MatchField.MatchType.Name(field.match_type).lower()


def _extras(table: p4i.Table) -> str:
    found = [
        text
        for given, text in (
            (table.is_const_table, "const entries"),
            (table.const_default_action_id, "const default"),
            (table.implementation_id, "action profile"),
            (table.idle_timeout_behavior, "idle timeout"),
        )
        if given
    ]
    return "".join(f"; {text}" for text in found)


def _type(spec: Any) -> str:
    which = spec.WhichOneof("type_spec")
    if which == "bitstring":
        bits = spec.bitstring
        return f"int<{bits.int.bitwidth}>" if bits.int.bitwidth else f"bit<{bits.bit.bitwidth}>"
    named = getattr(spec, which)
    return str(getattr(named, "name", "") or which)


@app.command()
def run(
    program: ProgramFile,
    vectors: Annotated[
        Path | None, typer.Option(metavar="X.stf", help="The vectors; X.stf beside the program unless given.")
    ] = None,
    include: Folders = None,
    define: Defines = None,
    interpret: Annotated[
        bool, typer.Option("--interpret", help="On the reference interpreter instead of generated code.")
    ] = False,
    only_named_ports: Annotated[
        bool,
        typer.Option("--only-named-ports", help="Packets at ports that the file never names are no problem."),
    ] = False,
    json: Json = False,
) -> None:
    """Runs vectors: writes their entries, sends their packets, compares. Exit code 1 if one differs."""
    from treecast.middleware.dataplane.p4 import PORTS, Runner, Switch, VectorError, parse_vectors

    path = vectors or program.with_suffix(".stf")
    try:
        text = path.read_text(encoding="utf-8")
        statements = parse_vectors(text, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}; give the vectors with --vectors") from error
    except VectorError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(FAILED) from error
    loaded = _load(program, include, define)
    switch = Switch(loaded, ports=PORTS, interpret=interpret)
    report = Runner(loaded, switch, strict=not only_named_ports).run(statements)
    if json:
        print_json(_as_json(program, path, report, switch))
    else:
        _show(path, text, report, switch)
    if not report.passed:
        raise typer.Exit(FAILED)


def _as_json(program: Path, path: Path, report: Report, switch: Any) -> dict[str, Any]:
    import msgspec

    statistics = msgspec.to_builtins(switch.stats(), str_keys=True)
    ports = statistics["ports"].items()
    statistics["ports"] = {port: counts for port, counts in ports if any(counts.values())}
    return {
        "program": str(program),
        "vectors": str(path),
        "passed": report.passed,
        **msgspec.to_builtins(report),
        "statistics": statistics,
    }


def _show(path: Path, text: str, report: Report, switch: Any) -> None:
    lines = text.split("\n")
    for problem in report.problems:
        print(_problem(path, lines, problem), file=sys.stderr)
    for line, found in report.read:
        print(f"{path}:{line}: {found}")
    for line in switch.log():
        print(line)
    stats = switch.stats()
    print_pairs(
        [
            ("packets in", report.packets_in),
            ("packets out", report.packets_out),
            ("expected", report.expected),
            ("as expected", report.met),
            ("ingress passes", stats.ingress_passes),
            ("egress passes", stats.egress_passes),
            ("recirculations", stats.recirculations),
            ("resubmissions", stats.resubmissions),
            ("clones", stats.clones),
            ("replicas", stats.replicas),
            *((f"dropped: {reason}", count) for reason, count in stats.drops.items()),
        ]
    )
    rows = [(name, table.hits, table.misses) for name, table in stats.tables.items()]
    if rows:
        print()
        print_table(("table", "hits", "misses"), rows, empty="")
    count = len(report.problems)
    print(f"\n{path}: " + ("passed" if report.passed else f"{count} problem{'' if count == 1 else 's'}"))


def _problem(path: Path, lines: list[str], problem: Problem) -> str:
    """Returns the message, the line, a caret under the word concerned, and expected and actual packets."""
    line = lines[problem.line - 1].replace("\t", " ")
    found = line.find(problem.word) if problem.word else -1
    column = found if found >= 0 else len(line) - len(line.lstrip())
    caret = " " * column + "^" * max(len(problem.word) if found >= 0 else 1, 1)
    detail = f"\n{problem.detail}" if problem.detail else ""
    return f"{path}:{problem.line}:{column + 1}: {problem.message}\n  {line}\n  {caret}{detail}"


@app.command()
def switch(
    program: Annotated[
        Path | None, typer.Argument(metavar="[X.p4]", help="Without a program, a controller must set one.")
    ] = None,
    port: Annotated[
        list[str] | None, typer.Option("--port", metavar="N=INTERFACE", help="A port; repeatable.")
    ] = None,
    p4runtime: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where controllers connect; unix:PATH, or off.")
    ] = "127.0.0.1:9559",
    cpu_port: Annotated[
        str, typer.Option(metavar="N|none", help="The port number of packets to and from controllers.")
    ] = "510",
    device_id: Annotated[int, typer.Option(help="P4Runtime's device id.")] = 1,
    name: Annotated[str, typer.Option(help="In the ready line and in logs.")] = "switch",
    seed: Annotated[int, typer.Option(help="Of the program's random().")] = 0,
    stats: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Counts as JSON, at the end and on SIGUSR1.")
    ] = None,
    include: Folders = None,
    define: Defines = None,
) -> None:
    """Runs a switch on network interfaces until SIGTERM. Needs root (AF_PACKET)."""
    from treecast.middleware.dataplane.softswitch.process import SwitchSettings

    config = b""
    if program is not None:
        config = _config(program, _load(program, include, define), include, define)
    settings = SwitchSettings(
        name,
        _ports(port or []),
        p4runtime,
        config,
        None if cpu_port == "none" else _number(cpu_port, "--cpu-port"),
        device_id=device_id,
        seed=seed,
    )
    _serve(settings, stats)


def _serve(settings: Any, stats: Path | None) -> None:
    import asyncio
    import logging

    from treecast.middleware.daemon import tuning
    from treecast.middleware.dataplane.p4 import P4RuntimeError
    from treecast.middleware.dataplane.softswitch.process import serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    tuning.tune_malloc()

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        with asyncio.Runner(loop_factory=tuning.new_event_loop) as runner:
            runner.run(serve(settings, say, stats=stats))
    except (OSError, ValueError, P4RuntimeError) as error:
        raise CommandError(f"the switch cannot run: {error}") from error


def _ports(given: list[str]) -> dict[int, str]:
    ports: dict[int, str] = {}
    for one in given:
        number, mark, interface = one.partition("=")
        if not mark or not interface:
            raise CommandError(f"--port {one}: write N=INTERFACE, as in --port 1=eth1")
        port = _number(number, "--port")
        if port in ports:
            raise CommandError(f"--port {one}: port {port} is {ports[port]} already")
        ports[port] = interface
    return ports


def _number(text: str, flag: str) -> int:
    if not text.isdigit() or int(text) > 0xFFFF:
        raise CommandError(f"{flag}: {text!r} is not a port number")
    return int(text)
