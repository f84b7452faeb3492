"""Counters of rounds and findings about data, as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from treecast.spark_connectors.pipeline.metrics import Metrics
from treecast.spark_connectors.pipeline.running import Ran


def test_rounds_add_up_and_findings_have_their_host() -> None:
    metrics = Metrics()
    metrics.add([Ran("bronze", 5, 1.5), Ran("advice", 1, 2.0)])
    metrics.add([Ran("bronze", 7, 0.5), Ran("advice", 0, 0.25, "the daemon is away")])
    odd = 'h"1\\\n'
    findings = [
        {"check": "host missing", "host": "b", "value": 1.0, "text": ""},
        {"check": "clock differs", "host": odd, "value": 600.25, "text": ""},
    ]
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.text(1795836632358, findings))
        for sample in family.samples
    }
    assert found["treecast_pipeline_rows_total", "bronze"] == 12
    assert found["treecast_pipeline_seconds_total", "advice"] == 2.25
    assert found["treecast_pipeline_failures_total", "advice"] == 1
    assert found["treecast_pipeline_epoch",] == 1795836632358
    assert found["treecast_pipeline_finding", "b", "host missing"] == 1
    assert found["treecast_pipeline_finding", "clock differs", odd] == 600.25


def test_findings_are_bounded() -> None:
    rows = [{"check": "late", "host": f"h{number}", "value": -60.0} for number in range(5000)]
    assert Metrics().text(1, rows).count("treecast_pipeline_finding{") == 1000
