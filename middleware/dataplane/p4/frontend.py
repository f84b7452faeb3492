"""The front end's one entry: text to a checked program. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from . import ir
from .check.program import check
from .parser import parse
from .preprocess import Include, Preprocessor
from .source import NOWHERE, Diagnostic, P4Error

NO_DEFINES: Mapping[str, str] = {}


def no_files(name: str, file: str) -> None:
    """An `Include` for programs that include nothing but core.p4 and v1model.p4."""


def load_program(
    text: str, name: str, include: Include = no_files, defines: Mapping[str, str] = NO_DEFINES
) -> ir.Program:
    """Returns the program in `text`, checked and instantiated.

    `name` is what messages call the file. `include(name, file)` brings the files that it includes: core.p4
    and v1model.p4 are ours and never asked for as <...>. `defines` are macros, as -D gives them. Raises
    P4Error with everything that is wrong with the program, or that this target doesn't support.
    """
    preprocessor = Preprocessor(include, defines)
    tokens = preprocessor.run(text, name)
    lines = preprocessor.lines
    try:
        declarations, problems = parse(tokens)
        problems = preprocessor.problems + problems
        if problems:
            raise P4Error(problems, lines)
        program, problems, warnings = check(declarations, name, lines)
    except RecursionError:
        raise P4Error([Diagnostic(NOWHERE, f"{name} is nested too deeply")], lines) from None
    if program is None:
        raise P4Error(problems, lines)
    return msgspec.structs.replace(program, warnings=tuple(one.show(lines) for one in warnings))
