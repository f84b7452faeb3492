#!/usr/bin/env python3
"""Kills driver, worker or daemon in rounds of `treecast pipeline run`; checks tables and advice after each.

    pipeline_run.py --count 30 --seed 7

Before each kill every host writes some intervals. The kill comes as a round reaches a step that the seed
chooses: offsets or commits of a query, a plan, or advice. The driver dies with its JVM. Then a round runs to
its end, and each interval must be in the archive and in the decoded table once, advice must rest on all of
them, and each epoch must have been advised once, in order. A life ends with a replay of all epochs, whose
digests must be equal.

With `--before PYTHON` an earlier installation of treecast makes each folder and advises the first epoch; this
one goes on from its checkpoints, and replays that epoch, too.

It can be interrupted with Ctrl-C; the same command continues: finished cycles are in
out/pipeline-crash/seed-N/state.json (`--fresh` starts over). Exit code: 0 no problem, 1 a problem, 130
interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from pipeline_kills.episode import Episode
from resumable import run_lives

if __name__ == "__main__":
    if "--before" in sys.argv:
        at = sys.argv.index("--before")
        Episode.before = sys.argv[at + 1]
        del sys.argv[at : at + 2]
    sys.exit(run_lives(__doc__, "pipeline-crash", Episode))
