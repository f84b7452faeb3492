"""`treecast eval`: reproduces a figure or a table of a paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from treecast.middleware.model.errors import Fault, TreecastError

from .options import Json
from .output import CommandError, print_json, print_table


def evaluate(
    name: Annotated[
        str | None,
        typer.Argument(help="What to reproduce, such as thesis-fig6.9; without it all are listed."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="All that is drawn follows from it.")] = 1,
    runs: Annotated[
        int, typer.Option("--runs", min=0, help="Runs per point; 0: the figure's own number.")
    ] = 0,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="Processes; 0: one per core.")] = 0,
    topology: Annotated[
        list[str] | None, typer.Option("--topology", help="A network by name; may be given again.")
    ] = None,
    topology_dir: Annotated[
        Path | None, typer.Option("--topology-dir", help="REPETITA or GraphML files; else topohub is asked.")
    ] = None,
    rules: Annotated[int, typer.Option("--rules", min=0, help="Rules per switch.")] = 40,
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder", help="Of virtual trees: largest, overlap, gain (Algorithm 5.1), ours, thorough."
        ),
    ] = "largest",
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder for JSON, table and plots.", metavar="DIR")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what the folder of --out has of this run.")
    ] = False,
    json: Json = False,
) -> None:
    """Reproduces a result of a paper: a table, the paper's statements as checks, JSON and plots."""
    from treecast.middleware.evaluation.figure import Options
    from treecast.middleware.evaluation.journal import JournalError
    from treecast.middleware.evaluation.registry import figures
    from treecast.middleware.evaluation.report import as_json, print_result, write
    from treecast.middleware.evaluation.runner import run
    from treecast.middleware.evaluation.thesis.encoding import ENCODERS
    from treecast.middleware.routing.errors import RoutingError

    known = figures()
    if name is None:
        _list(json)
        return
    if name not in known:
        raise CommandError(f"{name}: there is no such result; `treecast eval` lists those there are")
    if encoder not in ENCODERS:
        raise CommandError(f"--encoder {encoder}: expected {', '.join(ENCODERS)}")
    options = Options(
        seed, runs, jobs or os.cpu_count() or 1, rules, tuple(topology or ()), topology_dir, encoder
    )
    if resume and out is None:
        raise CommandError("--resume needs the folder of the run that is gone on with: --out DIR")
    rows_file = out / f"{name}.rows.jsonl" if out is not None else None
    try:
        result = run(known[name], options, rows_file=rows_file, resume=resume)
    except JournalError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise TreecastError(Fault.STORAGE, f"{error.filename}: {error.strerror}") from error
    except RoutingError as error:
        raise CommandError(
            f"{error}; --topology-dir DIR names a folder of .graph or .graphml files"
        ) from error
    if json:
        print_json(as_json(result))
    else:
        from rich.console import Console

        print_result(result, Console())
    if out is not None:
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
