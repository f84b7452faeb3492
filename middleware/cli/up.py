"""`treecast up`, and `treecast coordinator` with a part of its flags.

The flags come from the table of settings and are parsed here, because typer costs 30 ms.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from treecast.middleware.daemon.config import ConfigError, Loaded, load, unknown_flag
from treecast.middleware.daemon.settings import keys

WRONG_USE = 2
_CONFIG = "--config"
_HELP = frozenset({"-h", "--help"})
_DESCRIPTION = (
    "Runs one daemon in the foreground. When it serves it prints one line, `ready name=...`;"
    " its log goes to standard error."
)
_EPILOG = (
    "Each flag is also a variable (--fsync-interval-ms: TREECAST_FSYNC_INTERVAL_MS) and a key of the TOML"
    " file (fsync_interval_ms). A flag outranks a variable, a variable the file."
)


class Foreground:
    """A command that runs one process in the foreground: its settings and its help."""

    def __init__(self, name: str, description: str, settings: Sequence[str]) -> None:
        """`settings`: the names of the settings that it accepts."""
        self._name = name
        self._description = description
        self._keys = [keys()[name] for name in settings]

    def help_text(self) -> str:
        """Returns the output of `--help`."""
        import argparse  # imported here because it costs 7 ms of start-up and nothing else needs it

        made = argparse.ArgumentParser(
            f"treecast {self._name}", description=self._description, epilog=_EPILOG
        )
        made.add_argument(_CONFIG, metavar="FILE", help="a TOML file with settings")
        for key in self._keys:
            shown = f" [{key.default_text}]" if key.default_text else ""
            doc = (key.doc + shown).replace("%", "%%")
            made.add_argument(key.flag, metavar=key.placeholder, help=doc)
        return made.format_help()

    def read(self, arguments: Sequence[str]) -> Loaded:
        """Returns the settings from a command line and this process's environment. Raises ConfigError.

        Values stay text; `daemon.config` converts those of all sources alike.
        """
        given = self._values(arguments)
        config = given.pop(_CONFIG, None)
        flags = {
            key.name: ";".join(given[key.flag]) if key.base is dict else given[key.flag][-1]
            for key in self._keys
            if key.flag in given
        }
        return load(flags, os.environ, Path(config[-1]) if config else None)

    def _values(self, arguments: Sequence[str]) -> dict[str, list[str]]:
        """Returns the values of each flag, given as `--flag value` or `--flag=value`, in order."""
        flags = {_CONFIG, *(key.flag for key in self._keys)}
        given: dict[str, list[str]] = {}
        rest = iter(arguments)
        for text in rest:
            flag, equals, value = text.partition("=")
            if flag not in flags:
                raise ConfigError(
                    unknown_flag(text, flags) if text.startswith("-") else f"unexpected argument {text!r}"
                )
            if not equals:
                value = next(rest, "--")
                if value.startswith("--"):
                    raise ConfigError(f"{flag}: expected one argument")
            given.setdefault(flag, []).append(value)
        return given

    def run(
        self, arguments: Sequence[str], process: Callable[[Loaded], int], remarks: Sequence[str] = ()
    ) -> int:
        """Runs `process` with the settings, and with more `remarks` for its log. Returns the exit code."""
        if not _HELP.isdisjoint(arguments):
            print(self.help_text(), end="")
            return 0
        try:
            loaded = self.read(arguments)
        except ConfigError as error:
            print(f"treecast {self._name}: {error}\nTry `treecast {self._name} --help`.", file=sys.stderr)
            return WRONG_USE
        return process(replace(loaded, remarks=(*loaded.remarks, *remarks)))


def command() -> Foreground:
    return Foreground("up", _DESCRIPTION, list(keys()))


def up(arguments: Sequence[str], remarks: Sequence[str] = ()) -> int:
    """Runs the daemon. `remarks`: for its log. Returns the exit code."""
    return command().run(arguments, _run, remarks)


def _run(loaded: Loaded) -> int:
    if loaded.settings.store:
        where = loaded.sources.get("store", "--store")
        print(
            f"treecast up: {where}: the store is of `treecast coordinator`; a daemon that contains the"
            " coordinator keeps a file of its own",
            file=sys.stderr,
        )
        return WRONG_USE
    # imported here because a wrong flag is reported without it
    from treecast.middleware.daemon.run import run

    return run(loaded)


_DESCRIPTION = (
    "Runs a cluster's coordinator in the foreground, as a process of its own. When it serves it prints one"
    " line, `ready control=...`; its log goes to standard error. Hosts join it with --join and the token in"
    " `join-token` of its data directory."
)


def coordinator(arguments: Sequence[str], remarks: Sequence[str] = ()) -> int:
    """Runs the coordinator. `remarks`: for its log. Returns the exit code."""
    from treecast.middleware.daemon.coordinate import SETTINGS, run

    return Foreground("coordinator", _DESCRIPTION, SETTINGS).run(arguments, run, remarks)
