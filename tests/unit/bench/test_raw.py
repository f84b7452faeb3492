"""The length of the raw produce runs, and the layout of the floor's log."""

import pytest
from bench.core.load import LoadRun
from bench.floor import server
from bench.workloads import raw

from treecast.middleware.load.bench import BenchOptions


@pytest.mark.parametrize(
    ("seconds", "rate", "records"),
    [
        (0, 5_000, 1_000),  # the short form: the same number again
        (3, 5_000, 15_000),
        (3, 100, 1_000),  # a slow server gets at least as many as in its warm-up
        (3, 1e12, raw.MOST_BYTES // 1_024),
    ],
)
def test_a_produce_run_lasts_seconds_at_the_rate_of_its_warm_up(monkeypatch, seconds, rate, records):
    sent = []

    def run(kind, peer, options, topic, **changes):
        count = changes.get("records", options.records)
        sent.append((topic.endswith("-warm"), count))
        return LoadRun({"records": count, "seconds": count / rate}, 1.0)

    monkeypatch.setattr(raw, "_run", run)
    values = raw.RawProduce(BenchOptions(records=1_000, size=1_024), seconds).run(None, 1)
    assert sent == [(True, 1_000), (False, records)]
    assert values[raw.THROUGHPUT] == pytest.approx(rate)
    assert values[raw.SERVER_CPU] == pytest.approx(1e6 / records)


def test_the_floors_log_holds_the_batches_with_their_offsets(tmp_path):
    partition = server.Floor(tmp_path, "sendfile").partition("topic", 0)
    partition.batch, partition.records, partition.batches = bytes(100_000), 7, 20
    partition.build_log()
    assert partition.view is not None
    assert len(partition.view) == 2_000_000
    found = [int.from_bytes(partition.view[at : at + 8], "big") for at in range(0, 2_000_000, 100_000)]
    assert found == list(range(0, 140, 7))
    partition.view.close()
