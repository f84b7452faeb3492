"""`bench.micro_hop` uses internals of the parts that it measures. The tests check that these exist, not their
speed."""

import subprocess
import sys


def test_a_few_records_hop_from_host_to_host():
    command = [sys.executable, "-m", "bench.micro_hop", "--records", "20"]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 B: leader" in done.stdout
    assert "us a record" in done.stdout
