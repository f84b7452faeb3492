"""The tables of docs/operating.md match the code: settings, metrics, exit codes."""

from __future__ import annotations

import re
import urllib.request
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from treecast.middleware.daemon.manual import updated

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")


def test_the_settings() -> None:
    assert updated(PAGE) == PAGE
    stale = PAGE.replace("| `--fsync-interval-ms MS` | `1000`", "| `--fsync-interval-ms MS` | `7`")
    assert stale != PAGE
    assert updated(stale) == PAGE
    with pytest.raises(ValueError, match="lacks the lines"):
        updated("no table here")


def test_every_metric_is_described_and_every_description_is_of_one(start_daemon) -> None:
    section = PAGE.split("### Metrics", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    described = [pattern for row in rows for pattern in re.findall(r"`([a-z_*]+)`", row)]
    with urllib.request.urlopen(f"http://{start_daemon('--fabric', '127.0.0.1:0').admin}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    emitted = {f.name + ("_total" if f.type == "counter" else "") for f in families}
    assert len(emitted) > 30
    assert [name for name in emitted if not any(fnmatchcase(name, p) for p in described)] == []
    assert [p for p in described if not any(fnmatchcase(name, p) for name in emitted)] == []
    assert [name for name in emitted if not re.fullmatch(r"(treecast|process)(_[a-z0-9]+)+", name)] == []
    assert [name for name in emitted if name.endswith(("_ms", "_kb", "_mb", "_count", "_percent"))] == []
    units = re.compile(r"_(bytes|seconds)_(?!total$)")
    assert [name for name in emitted if units.search(name)] == []
    assert [f.name for f in families if not re.fullmatch(r"[A-Z0-9].*\.", f.documentation)] == []
