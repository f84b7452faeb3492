"""All commands but `up`, which has its own parser and is listed here for the help only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from treecast.middleware.model.errors import Fault, TreecastError

from . import (
    agent,
    filter,
    groups,
    lab,
    p4,
    partitions,
    pipeline,
    quotas,
    route,
    schema,
    secure,
    topics,
    users,
)
from .bench import bench
from .consume import consume
from .doctor import doctor
from .evaluate import evaluate
from .events import events
from .explain import explain
from .output import CommandError, say
from .produce import produce
from .restore import copy_coordinator, restore_coordinator
from .status import status
from .streams import streams

FAILED = 1
INTERRUPTED = 130

app = typer.Typer(
    name="treecast",
    help="A daemon that is a Kafka broker to the applications beside it and multicast to the network.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import treecast

        print(f"treecast {treecast.__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""


@app.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
def up(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Runs one daemon in the foreground."""
    from .up import up as run_daemon

    raise typer.Exit(run_daemon(arguments or []))


@app.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
def coordinator(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Runs a cluster's coordinator as a separate process."""
    from .up import coordinator as run_coordinator

    raise typer.Exit(run_coordinator(arguments or []))


app.add_typer(agent.app, name="agent")
app.command()(status)
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(users.users, name="users")
app.add_typer(users.acl, name="acl")
app.add_typer(quotas.quotas, name="quotas")
app.command("init")(secure.init)
app.add_typer(secure.token, name="token")
app.add_typer(secure.hosts, name="hosts")
app.add_typer(secure.keys, name="keys")
app.command("restore-coordinator")(restore_coordinator)
app.command("copy-coordinator")(copy_coordinator)
app.add_typer(partitions.app, name="partitions")
app.add_typer(lab.app, name="lab")
app.add_typer(route.app, name="route")
app.add_typer(p4.app, name="p4")
app.add_typer(filter.app, name="filter")
app.add_typer(schema.app, name="schema")
app.add_typer(pipeline.app, name="pipeline")
app.command()(produce)
app.command()(consume)
app.command()(bench)
app.command()(doctor)
app.command()(streams)
app.command()(events)
app.command()(explain)
app.command("eval")(evaluate)


def run(arguments: Sequence[str]) -> int:
    """Runs a command and returns the exit code. Refusals are printed as one line on standard error."""
    try:
        app(list(arguments), prog_name="treecast")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return 0
    except (CommandError, TreecastError) as error:
        say(f"treecast: {error}{_advice(error)}", err=True)
        return FAILED
    except OSError as error:
        if not error.filename:  # no file that the user has named, but a fault of ours
            raise
        say(f"treecast: {error.filename}: {error.strerror}: name another, or change its rights", err=True)
        return FAILED
    except Exception as error:
        from treecast.middleware.daemon.listeners import StartError  # here: few commands need it

        if not isinstance(error, StartError):
            raise
        say(f"treecast: {error}", err=True)
        return FAILED
    return 0


_ADVICE = {
    Fault.UNKNOWN_TOPIC: "`treecast topics list` lists all",
    Fault.TOPIC_EXISTS: "`treecast topics describe` shows it, `alter` and `grow` change it",
    Fault.GROUP_NOT_FOUND: "`treecast groups list` lists all",
    Fault.GROUP_NOT_EMPTY: "`treecast groups describe` shows its members",
    Fault.INVALID_CONFIG: "`treecast topics describe --json` lists the settings of a topic",
    Fault.INTERNAL: "the daemon's log has more",
    Fault.STORAGE: "the daemon's log has more; `treecast doctor` looks at the disk",
}


def _advice(error: Exception) -> str:
    """Returns the next step for the user, if the refusal itself does not state one."""
    advice = _ADVICE.get(error.fault) if isinstance(error, TreecastError) else None
    return f"; {advice}" if advice else ""


def _forget_stdout() -> None:
    """Redirects output that nobody reads any more, so that nothing is written at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
