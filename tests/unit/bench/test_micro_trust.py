"""`bench.micro_sealing` and the rights of `bench.micro_request` use internals of what they measure. The tests
check that these exist, not their speed."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["bench.micro_sealing", "--rounds", "1", "--messages", "2"], "sealed over authenticated"),
        (["bench.micro_sealing", "--rounds", "1", "--messages", "2", "--codec", "--json"], '"sealed": ['),
        (["bench.micro_request", "--records", "5", "--rights", "1"], "us with rights"),
    ],
)
def test_each_shows_what_it_measured(words, shown):
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, check=False, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert shown in " ".join(done.stdout.split())
