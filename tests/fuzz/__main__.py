"""python -m tests.fuzz packets|session|batches [--runs N] [--seed N] [--corpus DIR]
python -m tests.fuzz segments [--seconds S] [--seed N]

`segments` needs nothing. It gives a host of the fabric segments of all kinds with a valid tag, for 600
seconds as a rule. It ends with 1 at the first step after which something is wrong, and keeps a log of all
steps, which `python -m tests.replay FILE` gives again. The others need atheris (`pip install atheris`). They
exit with 0 after N runs, or stop at an input that raises an unexpected exception. atheris keeps such inputs,
and slow ones, in files below out/fuzz.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz import steps

KEPT = Path("out/fuzz")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=["packets", "session", "batches", "segments"])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0, help="of `segments`; default: 600")
    parser.add_argument(
        "--corpus", type=Path, help="folder of inputs to continue with; default: a temporary one"
    )
    given = parser.parse_args()
    if given.target == "segments":
        return steps.command(given.seed, given.seconds)
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
