"""`treecast up`: its flags come from the table of settings, its parser from argparse (typer costs 30 ms)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from treecast.middleware.daemon.config import ConfigError, Loaded, load, unknown_flag
from treecast.middleware.daemon.settings import keys

WRONG_USE = 2
_DESCRIPTION = (
    "Runs one daemon in the foreground. When it serves it prints one line, `ready name=...`;"
    " its log goes to standard error."
)
_EPILOG = (
    "Each flag is also a variable (--fsync-interval-ms: TREECAST_FSYNC_INTERVAL_MS) and a key of the TOML"
    " file (fsync_interval_ms). A flag outranks a variable, a variable the file."
)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as the other commands do."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def parser() -> argparse.ArgumentParser:
    """All flags. Values stay text; `daemon.config` converts those of all sources alike."""
    made = _Parser(
        prog="treecast up",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    made.add_argument("--config", metavar="FILE", help="a TOML file with settings")
    for key in keys().values():
        shown = f" [{key.default_text}]" if key.default_text else ""
        action = "append" if key.base is dict else "store"
        doc = (key.doc + shown).replace("%", "%%")
        made.add_argument(key.flag, dest=key.name, metavar=key.placeholder, help=doc, action=action)
    return made


def read(arguments: Sequence[str]) -> Loaded:
    """The settings of a command line and this process's environment; raises ConfigError."""
    known, rest = parser().parse_known_args(list(arguments))
    for text in rest:
        raise ConfigError(unknown_flag(text) if text.startswith("-") else f"unexpected argument {text!r}")
    flags = {
        name: ";".join(value) if isinstance(value, list) else value
        for name, value in vars(known).items()
        if value is not None and name != "config"
    }
    return load(flags, os.environ, Path(known.config) if known.config else None)


def up(arguments: Sequence[str]) -> int:
    """Runs the daemon; answers the exit code."""
    try:
        loaded = read(arguments)
    except ConfigError as error:
        print(f"treecast up: {error}\nTry `treecast up --help`.", file=sys.stderr)
        return WRONG_USE
    from treecast.middleware.daemon.run import run

    return run(loaded)
