"""The import contract, the purity of the pure rooms, and proof that both checks can fail."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("house_contract", Path(__file__).with_name("contract.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
contract = importlib.util.module_from_spec(_SPEC)
sys.modules["house_contract"] = contract
_SPEC.loader.exec_module(contract)


def test_imports_only_go_down() -> None:
    found = [i for path in contract.sources() for i in contract.imports_of(path)]
    assert len(found) > 50
    assert [str(i) for i in found if contract.breaks_layers(i)] == []


def test_a_package_behind_one_module_is_reached_through_it_alone() -> None:
    """`dataplane/p4` is a quarter of the code; readers of other rooms need only know its public names."""
    inside = Path("bench/micro_p4.py")  # it measures internals
    paths = [path for path in (*contract.sources(), *contract.beside_the_package()) if path != inside]
    found = [i for path in paths for i in contract.imports_of(path)]
    assert [str(i) for i in found if contract.passes_the_public_module(i)] == []
    assert any(i.module == "treecast.middleware.dataplane.p4.Switch" for i in found)


@pytest.mark.parametrize(
    ("path", "module", "passes"),
    [
        ("middleware/control/a.py", "treecast.middleware.dataplane.p4.Switch", False),
        ("middleware/control/a.py", "treecast.middleware.dataplane.p4.runtime.Switch", True),
        ("middleware/control/a.py", "treecast.middleware.dataplane.p4.runtime", True),
        ("middleware/dataplane/p4/stf/a.py", "treecast.middleware.dataplane.p4.runtime.Switch", False),
        ("middleware/dataplane/softswitch/a.py", "treecast.middleware.dataplane.p4files.load_file", False),
    ],
)
def test_that_contract_can_fail(path: str, module: str, passes: bool) -> None:
    assert contract.passes_the_public_module(contract.Import(Path(path), 1, module)) is passes


def test_pure_modules_do_no_io() -> None:
    paths = contract.pure_sources()
    assert len(paths) > 8
    impure = [
        str(i)
        for path in paths
        for i in contract.imports_of(path)
        if i.module.split(".")[0] in contract.IMPURE
    ]
    assert impure == []


def test_every_package_is_where_the_links_point() -> None:
    links = sorted(p.name for p in (contract.REPOSITORY / "src/treecast").iterdir() if p.is_symlink())
    assert links == ["agents", "middleware", "p4", "shims", "spark_connectors"]  # p4 has programs and data
    assert not (contract.REPOSITORY / "treecast").exists()


@pytest.mark.parametrize(
    ("path", "module", "breaks"),
    [
        ("middleware/wire/a.py", "treecast.middleware.model.errors.Fault", False),
        ("middleware/model/a.py", "treecast.middleware.wire.varint", True),
        ("middleware/storage/a.py", "treecast.middleware.api.client", True),
        ("shims/kafka/a.py", "treecast.middleware.broker.Cluster", False),
        ("shims/kafka/a.py", "treecast.middleware.broker.partition.LocalPartition", True),
        ("shims/kafka/a.py", "treecast.middleware.storage.log", True),
        ("middleware/daemon/a.py", "treecast.shims.kafka.server", False),
        ("middleware/broker/a.py", "treecast.__version__", False),
    ],
)
def test_the_contract_can_fail(path: str, module: str, breaks: bool) -> None:
    assert contract.breaks_layers(contract.Import(Path(path), 1, module)) is breaks
