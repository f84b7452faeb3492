"""python -m tests.fuzz packets|session|batches [--runs N] [--seed N] [--corpus DIR]

Needs atheris (`pip install atheris`). Exits with 0 after N runs, or stops at an input that raises an
unexpected exception. atheris keeps such inputs, and slow ones, in files below out/fuzz.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

KEPT = Path("out/fuzz")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=["packets", "session", "batches"])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--corpus", type=Path, help="folder of inputs to continue with; default: a temporary one"
    )
    given = parser.parse_args()
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: pip install atheris", file=sys.stderr)
        return 1
    with atheris.instrument_imports(include=["treecast"]):
        from tests.fuzz.targets import SEEDS, TARGETS
    with tempfile.TemporaryDirectory() as thrown_away:
        corpus = given.corpus or Path(thrown_away)
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(SEEDS):
            (corpus / f"seed{number}").write_bytes(seed)
        KEPT.mkdir(parents=True, exist_ok=True)
        options = [f"-runs={given.runs}", f"-seed={given.seed}", "-max_len=512"]
        options += [f"-artifact_prefix={KEPT}/", str(corpus)]
        atheris.Setup([sys.argv[0], *options], TARGETS[given.target])
        atheris.Fuzz()  # ends the process
    return 0


if __name__ == "__main__":
    sys.exit(main())
