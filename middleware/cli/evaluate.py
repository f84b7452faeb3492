"""`treecast eval`: reproduces a figure or a table of a paper."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treecast.middleware.model.errors import Fault, TreecastError

from .options import Json
from .output import CommandError, print_json, print_table

if TYPE_CHECKING:
    from treecast.middleware.evaluation.figure import Options, Result


Name = Annotated[
    str | None,
    typer.Argument(help="What to reproduce, such as thesis-fig6.9; without it all are listed."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Runs = Annotated[int, typer.Option("--runs", min=0, help="Runs per point; 0: the figure's own number.")]
Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Processes; 0: one per core.")]
Topologies = Annotated[
    list[str] | None,
    typer.Option(
        "--topology",
        help="A network by name; repeatable. all: every available network of the thesis' Table 6.1.",
    ),
]
Folder = Annotated[
    Path | None, typer.Option("--topology-dir", help="REPETITA or GraphML files; else topohub is asked.")
]
Rules = Annotated[int, typer.Option("--rules", min=0, help="Rules per switch.")]
EncoderName = Annotated[
    str,
    typer.Option(
        "--encoder",
        help="Of virtual trees: given, largest, overlap, gain, steepest (Algorithm 5.1), ours, thorough.",
    ),
]
Scenarios = Annotated[
    list[str] | None, typer.Option("--scenario", help="Of a measured figure, one scenario; repeatable.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Short loads, of a measured figure.")]
Scale = Annotated[
    float,
    typer.Option(
        "--scale", min=0, help="What rates and links of a measured figure are divided by; 0: its own."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="A folder for JSON, table and plots.", metavar="DIR")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the folder of --out.")]


def evaluate(
    name: Name = None,
    seed: Seed = 1,
    runs: Runs = 0,
    jobs: Jobs = 0,
    topology: Topologies = None,
    topology_dir: Folder = None,
    rules: Rules = 40,
    encoder: EncoderName = "largest",
    scenario: Scenarios = None,
    quick: Quick = False,
    scale: Scale = 0.0,
    out: Out = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Reproduces a result of a paper: a table, the paper's statements as checks, JSON and plots."""
    from treecast.middleware.evaluation.figure import Options

    if name is None:
        _list(json)
        return
    options = Options(
        seed,
        runs,
        jobs or os.cpu_count() or 1,
        rules,
        tuple(topology or ()),
        topology_dir,
        encoder,
        tuple(scenario or ()),
        quick,
        scale,
    )
    _show(_result(name, options, out, resume), out, json)


def _result(name: str, options: Options, out: Path | None, resume: bool) -> Result:
    """Returns the result. Raises CommandError if it does not exist or is not available with these options."""
    from treecast.middleware.evaluation.figure import NotMeasured
    from treecast.middleware.evaluation.journal import JournalError
    from treecast.middleware.evaluation.registry import figures
    from treecast.middleware.evaluation.runner import run
    from treecast.middleware.evaluation.thesis.encoding import ENCODERS
    from treecast.middleware.routing.network import RoutingError, Unreachable

    known = figures()
    if name not in known:
        raise CommandError(f"{name}: there is no such result; `treecast eval` lists all")
    if options.encoder not in ENCODERS:
        raise CommandError(f"--encoder {options.encoder}: expected {', '.join(ENCODERS)}")
    if resume and out is None:
        raise CommandError("--resume needs the folder of the run to continue: --out DIR")
    if out is not None:
        _tell_of_pictures(known[name].name)
    rows_file = out / f"{name}.rows.jsonl" if out is not None else None
    try:
        return run(known[name], options, rows_file=rows_file, resume=resume)
    except (JournalError, NotMeasured) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise TreecastError(Fault.STORAGE, f"{error.filename}: {error.strerror}") from error
    except Unreachable as error:
        raise CommandError(str(error)) from error
    except RoutingError as error:
        raise CommandError(
            f"{error}; --topology-dir DIR names a folder of .graph or .graphml files"
        ) from error


def _tell_of_pictures(name: str) -> None:
    """Prints what to install for pictures if they cannot be drawn, before a run that may take long."""
    if find_spec("matplotlib") is None:
        print(
            "no pictures: matplotlib is not installed. `pip install 'treecast[bench]'`, then `treecast eval "
            f"{name}` with the same options and --resume draws them from the rows of this run",
            file=sys.stderr,
        )


def _show(result: Result, out: Path | None, json: bool) -> None:
    """Prints the result, and writes it to a folder if given."""
    from treecast.middleware.evaluation.report import as_json, print_result, write

    if json:
        print_json(as_json(result))
    else:
        from rich.console import Console

        print_result(result, Console())
    if out is None:
        return
    try:
        written = write(result, out)
    except OSError as error:
        raise TreecastError(Fault.STORAGE, f"--out {out}: {error.strerror}") from error
    if not json:
        print("written:", *written)


def _list(json: bool) -> None:
    from treecast.middleware.evaluation.registry import figures

    rows = [(figure.name, figure.title) for figure in figures().values()]
    if json:
        print_json([{"name": name, "title": title} for name, title in rows])
    else:
        print_table(("name", "title"), rows, empty="nothing to reproduce")
