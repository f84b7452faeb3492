"""Independent P4 programs on the embedded target: p4c's bmv2 samples and the p4lang tutorials.

    python -m tests.foreign.p4_samples --suites DIR

DIR holds checkouts of p4lang/p4c and p4lang/tutorials.

Every v1model program is loaded; its P4Info is compared with p4c's beside it; and vectors (X.stf) are run if
there are any. Failures are listed in `p4_samples.toml` with their reasons; there must be no others. Exit code
0: no change.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import signal
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from finsy.proto import p4i
from rich.console import Console
from rich.table import Table

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.p4info import build_p4info, parse_text
from treecast.middleware.dataplane.p4.runtime import Switch
from treecast.middleware.dataplane.p4.source import P4Error
from treecast.middleware.dataplane.p4.stf.parse import parse
from treecast.middleware.dataplane.p4.stf.runner import PORTS, Runner
from treecast.middleware.dataplane.p4files import load_file

ALLOW_LIST = Path(__file__).with_name("p4_samples.toml")
TUTORIALS = ALLOW_LIST.with_name("tutorials")  # our vectors; p4c's are beside its samples
SECONDS = 60
STAGES = ("load", "p4info", "run")


@dataclass(frozen=True)
class Sample:
    """A program, p4c's P4Info of it, and its vectors, if any."""

    name: str
    program: Path
    p4info: Path | None = None
    vectors: Path | None = None


@dataclass
class Result:
    """The result of one stage of one sample; `why` is empty if it passed."""

    sample: str
    stage: str
    why: str = ""

    @property
    def key(self) -> str:
        return f"{self.stage} {self.sample}"


@dataclass(frozen=True)
class Known:
    """An entry of the allow list."""

    key: str
    reason: str


def samples(suites: Path) -> list[Sample]:
    """Returns all programs for v1model below a folder, by name."""
    found: list[Sample] = []
    for folder in sorted(suites.rglob("testdata/p4_16_samples")):
        found += _of_p4c(folder)
    for folder in sorted(suites.rglob("exercises")):
        for program in sorted(folder.rglob("solution/*.p4")):
            name, ours = f"tutorials/{program.relative_to(folder)}", TUTORIALS / f"{program.stem}.stf"
            found.append(Sample(name, program, None, ours if ours.is_file() else None))
    return found


def _of_p4c(folder: Path) -> Iterator[Sample]:
    """Yields the programs that p4c compiles for bmv2, or for which it keeps vectors or P4Info."""
    outputs = folder.with_name("p4_16_samples_outputs")
    for program in sorted(folder.rglob("*.p4")):
        kept, vectors = outputs / f"{program.name}.p4info.txtpb", program.with_suffix(".stf")
        if not program.is_file() or "v1model.p4" not in program.read_text(errors="replace"):
            continue
        if kept.is_file() or vectors.is_file() or program.stem.endswith("-bmv2"):
            yield Sample(
                str(program.relative_to(folder)),
                program,
                kept if kept.is_file() else None,
                vectors if vectors.is_file() else None,
            )


def try_sample(sample: Sample, *, interpret: bool) -> Iterator[Result]:
    """Runs the stages of one sample; stops after a failure."""
    try:
        with _in_time():
            program = load_file(sample.program, folders=[sample.program.parent])
    except P4Error as error:
        first = error.diagnostics[0]
        yield Result(sample.name, "load", f"line {first.span.line}: {first.message}")
        return
    except Exception as error:
        yield Result(sample.name, "load", _crash(error))
        return
    yield Result(sample.name, "load")
    if sample.p4info is not None:
        yield Result(sample.name, "p4info", _compare(program, sample.p4info))
    if sample.vectors is not None:
        yield Result(sample.name, "run", _run(program, sample.vectors, interpret))


def _crash(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"crash: {type(error).__name__}: {str(error)[:200]}{place}"


def _compare(program: ir.Program, kept: Path) -> str:
    """Returns the first difference between our P4Info and p4c's."""
    try:
        with _in_time():
            ours = normal(build_p4info(program))
    except Exception as error:
        return _crash(error)
    theirs = normal(parse_text(kept.read_text()))
    for field in p4i.P4Info.DESCRIPTOR.fields:
        mine, other = str_of(ours, field.name), str_of(theirs, field.name)
        if mine != other:
            lines, wanted = mine.splitlines(), other.splitlines()
            at = next(
                (n for n, pair in enumerate(zip(lines, wanted, strict=False)) if pair[0] != pair[1]), -1
            )
            return (
                f"{field.name}: ours {lines[at].strip() if lines else 'nothing'!r}, "
                f"p4c's {wanted[at].strip() if wanted else 'nothing'!r}"
            )
    return ""


def str_of(info: p4i.P4Info, field: str) -> str:
    only = p4i.P4Info()
    only.MergeFrom(info)
    for name, _ in [(found.name, None) for found, _ in info.ListFields()]:
        if name != field:
            only.ClearField(name)
    return str(only)


def normal(info: p4i.P4Info) -> p4i.P4Info:
    """Sorts objects by identifier; p4c's order is that of its walk over the program."""
    sorted_info = p4i.P4Info()
    sorted_info.CopyFrom(info)
    for field, value in list(sorted_info.ListFields()):
        if field.message_type is not None and "preamble" in field.message_type.fields_by_name:
            in_order = sorted(value, key=lambda one: one.preamble.id)
            copies = [type(one).FromString(one.SerializeToString(deterministic=True)) for one in in_order]
            del value[:]
            value.extend(copies)
    for table in sorted_info.tables:
        table.direct_resource_ids.sort()
    if not sorted_info.type_info.ListFields():
        sorted_info.ClearField("type_info")
    return sorted_info


def _run(program: ir.Program, vectors: Path, interpret: bool) -> str:
    try:
        with _in_time():
            statements = parse(vectors.read_text(), vectors.name)
            switch = Switch(program, ports=PORTS, interpret=interpret)
            report = Runner(program, switch, strict=False).run(statements)
    except Exception as error:
        return _crash(error)
    if report.passed:
        return ""
    first = report.problems[0]
    return f"line {first.line}: {first.message}"


@contextmanager
def _in_time() -> Iterator[None]:
    """Raises TimeoutError after SECONDS."""

    def late(*_: object) -> None:
        raise TimeoutError(f"longer than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


# --- known failures, and changes


def known_failures(path: Path = ALLOW_LIST) -> list[Known]:
    entries = tomllib.loads(path.read_text()).get("known", []) if path.is_file() else []
    return [Known(f"{entry['stage']} {entry['sample']}", entry["reason"]) for entry in entries]


def news(results: Sequence[Result], known: Sequence[Known]) -> list[str]:
    """Returns the differences from the allow list."""
    allowed = {entry.key for entry in known}
    seen = {result.key: result for result in results}
    return [
        *(f"fails: {r.key}: {r.why}" for r in results if r.why and r.key not in allowed),
        *(f"passes now, take it off the allow list: {key}" for key in sorted(allowed) if _passes(seen, key)),
        *(f"on the allow list, but did not run: {key}" for key in sorted(allowed - seen.keys())),
    ]


def _passes(seen: dict[str, Result], key: str) -> bool:
    return key in seen and not seen[key].why


def table(results: Sequence[Result], known: Sequence[Known]) -> Table:
    allowed = {entry.key for entry in known}
    shown = Table(title="P4 programs of others")
    for column in ("stage", "tried", "passed", "failed as the allow list says", "failed otherwise"):
        shown.add_column(column, justify="left" if column == "stage" else "right")
    for stage in STAGES:
        of_stage = [result for result in results if result.stage == stage]
        failed = [result for result in of_stage if result.why]
        expected = sum(result.key in allowed for result in failed)
        passed = len(of_stage) - len(failed)
        counts = (len(of_stage), passed, expected, len(failed) - expected)
        shown.add_row(stage, *(str(count) for count in counts))
    return shown


def by_cause(results: Sequence[Result]) -> str:
    """Lists failures by cause, the most frequent first."""
    causes: dict[str, list[Result]] = {}
    for result in results:
        if result.why:
            text = re.sub(r"line \d+: ", "", result.why)
            cause = f"{result.stage}: " + re.sub(
                r"'[^']*'|\b0x[0-9a-fA-F]+\b|\b\d+\b|[0-9A-F]{6,}", "_", text
            )
            causes.setdefault(cause[:160], []).append(result)
    lines = []
    for cause, those in sorted(causes.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(those):4} {cause}")
        lines += [f"       {one.sample}: {one.why[:240]}" for one in those]
    counted = Counter((result.stage, bool(result.why)) for result in results)
    head = ", ".join(
        f"{stage} {counted[stage, False]} of {counted[stage, False] + counted[stage, True]}"
        for stage in STAGES
    )
    return "\n".join([f"passed: {head}", *lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign.p4_samples", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--suites", type=Path, required=True, help="folder with checkouts of p4c and tutorials"
    )
    parser.add_argument("-k", dest="select", default="", help="only samples whose name contains this")
    parser.add_argument("--interpret", action="store_true", help="use the reference interpreter")
    parser.add_argument("--failures", type=Path, help="write all failures by cause to this file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    chosen = [sample for sample in samples(options.suites) if options.select in sample.name]
    if not chosen:
        console.print(f"no P4 programs for v1model in {options.suites}: check out p4lang/p4c there")
        return 1
    results = [result for sample in chosen for result in try_sample(sample, interpret=options.interpret)]
    known = known_failures()
    lines = news(results, known if not options.select else [])
    if options.failures:
        options.failures.write_text(by_cause(results))
    if options.json:
        print(json.dumps({"results": [dataclasses.asdict(one) for one in results], "news": lines}))
    else:
        console.print(table(results, known))
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
