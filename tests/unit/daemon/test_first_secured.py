"""`treecast init --secure`: what it makes, and what it leaves as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from treecast.middleware.api.trust_files import FOLDER
from treecast.middleware.daemon.first_secured import CONFIGS, make_secured
from treecast.middleware.daemon.users_file import FILE
from treecast.middleware.model.errors import TreecastError


def test_no_configuration_is_replaced(tmp_path: Path) -> None:
    """Neither the daemon's own, nor one that was made beside it: it is said before anything is made."""
    for name in CONFIGS:
        (tmp_path / name).write_text(f"# {name}")
    with pytest.raises(TreecastError, match=r"move secured\.toml away"):
        make_secured(tmp_path, "h1", "", "admin", b"secret")
    assert [(tmp_path / name).read_text() for name in CONFIGS] == [f"# {name}" for name in CONFIGS]
    assert not (tmp_path / FOLDER).exists()
    assert not (tmp_path / FILE).exists()
    (tmp_path / CONFIGS[1]).unlink()
    assert make_secured(tmp_path, "h1", "", "admin", b"secret") == tmp_path / CONFIGS[1]
    assert (tmp_path / CONFIGS[0]).read_text() == f"# {CONFIGS[0]}"
