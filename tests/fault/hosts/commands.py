"""Runs `treecast` commands one after the other, and pays for their imports once.

A line of standard input is a JSON list of words; a line of standard output is [exit code, standard output,
standard error] of the command.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from treecast.middleware.cli import main


def run(words: list[str]) -> tuple[int, str, str]:
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(words)
    return code, out.getvalue(), error.getvalue()


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
