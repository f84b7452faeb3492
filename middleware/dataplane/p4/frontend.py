"""The entry point of the front end: text to a checked program. Pure."""

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
    """An `Include` for programs that include only core.p4 and v1model.p4."""


def load_program(
    text: str, name: str, include: Include = no_files, defines: Mapping[str, str] = NO_DEFINES
) -> ir.Program:
    """Returns the program in `text`, checked and instantiated.

    `name` is the file's name in messages. `include(name, file)` returns included files; it is never called
    for <core.p4> and <v1model.p4>, which are built in. `defines` are macros, as from -D. Raises P4Error with
    all errors in the program and all features that this target does not support.
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
