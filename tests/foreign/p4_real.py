"""Our P4 programs under p4lang's own tools: compiled by p4c for bmv2, their vectors run on simple_switch.

    python -m tests.foreign.p4_real --p4c p4c-bm2-ss --simple-switch simple_switch --cli simple_switch_CLI

For each program in p4/ (or those named): p4c compiles it without an error, and its warnings are shown; the
P4Info that p4c writes equals ours; and simple_switch passes the vectors beside the program. Vectors need TAP
devices and their own network namespace: root, or a kernel that lets users have namespaces (`unshare`).
Without --simple-switch programs are only compiled. Exit code 0: no problem.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table
from tests.foreign.bmv2 import Bmv2Error, SimpleSwitch, Tools
from tests.foreign.p4_samples import normal, str_of

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.p4info import build_p4info, parse_text
from treecast.middleware.dataplane.p4.stf import statements as s
from treecast.middleware.dataplane.p4.stf.parse import parse
from treecast.middleware.dataplane.p4.stf.runner import Report, Runner
from treecast.middleware.dataplane.p4files import load_file

PROGRAMS = Path(__file__).resolve().parents[2] / "p4"
_INSIDE = "TREECAST_P4_REAL_INSIDE"  # set once the namespace exists


@dataclass
class Found:
    """The result of one program. Empty texts are good."""

    program: Path
    compiled: str = ""
    warnings: list[str] = field(default_factory=list)
    p4info: str = ""
    report: Report | None = None
    not_sent: int = 0
    vectors: str = ""

    @property
    def good(self) -> bool:
        return not (self.compiled or self.p4info or self.vectors)


def compile_program(p4c: str, program: Path, folder: Path) -> tuple[Path, Path, str, str]:
    """Returns (JSON, P4Info, p4c's messages, why it failed). `p4c` is the driver or p4c-bm2-ss itself."""
    json, info = folder / f"{program.stem}.json", folder / f"{program.stem}.p4info.txt"
    if Path(p4c).name == "p4c":
        words = ["--target", "bmv2", "--arch", "v1model", "--p4runtime-files", str(info), "-o", str(folder)]
    else:
        words = ["--std", "p4-16", "--arch", "v1model", "--p4runtime-files", str(info), "-o", str(json)]
    done = subprocess.run([p4c, *words, str(program)], capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip()
    failed = f"exit code {done.returncode}: {said}" if done.returncode or not json.is_file() else ""
    return json, info, said, failed


def warnings_of(said: str) -> list[str]:
    """Returns the lines that start a warning."""
    return [line for line in said.splitlines() if re.search(r"\bwarning\b", line)]


def compare_p4info(program: ir.Program, theirs: Path) -> str:
    """Returns the fields that differ, with both texts."""
    ours, other = normal(build_p4info(program)), normal(parse_text(theirs.read_text()))
    if not any(table.HasField("initial_default_action") for table in other.tables):
        for table in ours.tables:  # older versions of p4c lack these fields
            table.ClearField("initial_default_action")
            table.ClearField("has_initial_entries")
    differing = [
        f"{name}:\n  ours\n{mine}\n  p4c's\n{wanted}"
        for name in sorted({field.name for field in ours.DESCRIPTOR.fields})
        if (mine := str_of(ours, name)) != (wanted := str_of(other, name))
    ]
    return "\n".join(differing)


def run_vectors(
    tools: Tools, program: ir.Program, json: Path, vectors: Path, folder: Path
) -> tuple[Report, int]:
    """Runs the file's statements on a simple_switch of its own; also returns the number of unsendable
    packets."""
    listed = parse(vectors.read_text(), vectors.name)
    ports = {one.port for one in listed if isinstance(one, s.Packet | s.Expect)}
    with SimpleSwitch(tools, program, json, sorted(ports), folder) as switch:
        return Runner(program, cast(Any, switch)).run(listed), switch.not_sent


def try_program(p4c: str, tools: Tools | None, path: Path, folder: Path) -> Found:
    found = Found(path)
    json, info, said, found.compiled = compile_program(p4c, path, folder)
    found.warnings = warnings_of(said)
    if found.compiled:
        return found
    program = load_file(path)
    found.p4info = compare_p4info(program, info)
    vectors = path.with_suffix(".stf")
    if tools is None or not vectors.is_file():
        return found
    try:
        found.report, found.not_sent = run_vectors(tools, program, json, vectors, folder)
    except Bmv2Error as error:
        found.vectors = str(error)
        return found
    found.vectors = "\n".join(f"line {p.line}: {p.message}\n{p.detail}" for p in found.report.problems)
    return found


def table(results: list[Found]) -> Table:
    shown = Table(title="our P4 programs under p4lang's tools")
    shown.add_column("program", no_wrap=True)
    for column in ("p4c", "warnings", "P4Info", "packets in", "not sent", "expected", "as expected"):
        shown.add_column(column)
    for one in results:
        shown.add_row(
            one.program.name,
            "refused" if one.compiled else "compiled",
            str(len(one.warnings)),
            "" if one.compiled else "differs" if one.p4info else "equal",
            *_counts(one),
        )
    return shown


def _counts(one: Found) -> list[str]:
    report = one.report
    if report is None:
        return ["", "", "", ""]
    return [str(n) for n in (report.packets_in, one.not_sent, report.expected, report.met)]


def inside_namespace() -> None:
    """Re-executes the command in its own network namespace, as root there."""
    if os.environ.get(_INSIDE):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = [
        "unshare",
        *rights,
        "--net",
        "--",
        sys.executable,
        "-m",
        "tests.foreign.p4_real",
        *sys.argv[1:],
    ]
    os.environ[_INSIDE] = "1"
    os.execvp("unshare", command)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign.p4_real", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--p4c", required=True, help="p4c or p4c-bm2-ss")
    parser.add_argument("--simple-switch", help="bmv2's simple_switch, with Thrift")
    parser.add_argument("--cli", default="simple_switch_CLI", help="bmv2's simple_switch_CLI")
    parser.add_argument("--settle", type=float, default=0.15, help="seconds to wait for a packet's output")
    parser.add_argument("programs", nargs="*", type=Path, help="default: all in p4/")
    options = parser.parse_args()
    console = Console()
    console.width = max(console.width, 110)
    needed = [options.p4c, *([options.simple_switch, options.cli] if options.simple_switch else [])]
    if missing := [tool for tool in needed if shutil.which(tool) is None]:
        console.print(f"not found: {', '.join(missing)}; docs/p4.md says where they come from")
        return 2
    tools = None
    if options.simple_switch:
        inside_namespace()
        tools = Tools(options.simple_switch, options.cli, options.settle)
    programs = options.programs or sorted(PROGRAMS.glob("*.p4"))
    with tempfile.TemporaryDirectory(prefix="p4-real-") as folder:
        results = [try_program(options.p4c, tools, path, Path(folder)) for path in programs]
    for one in results:
        for text in (one.compiled, *one.warnings, one.p4info, one.vectors):
            if text:
                console.print(f"{one.program.name}: {text}", soft_wrap=True, highlight=False, markup=False)
    console.print(table(results))
    return 0 if all(one.good for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
