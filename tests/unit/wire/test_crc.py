"""CRC-32C: the check value of the CRC catalogue, and both implementations."""

from __future__ import annotations

import subprocess
import sys

import pytest

from treecast.middleware.wire import crc

CHECK = 0xE3069283  # of b"123456789"; CRC-32/ISCSI in the catalogue of parametrised CRC algorithms


def test_the_check_value() -> None:
    assert crc.crc32c(b"123456789") == CHECK
    assert crc.crc32c(memoryview(b"456789"), crc.crc32c(b"123")) == CHECK


@pytest.mark.parametrize("missing", ["_EXTENSION", "_PACKAGE"])
def test_the_package_stands_in_where_the_extension_is_not_found(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crc, missing, "crc32c_elsewhere")
    with pytest.raises(ImportError):
        crc._from_extension()
    assert crc.load()(b"123456789") == CHECK


def test_the_package_stands_in_where_the_extension_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crc, "_PACKAGE", "json")
    monkeypatch.setattr(crc, "_EXTENSION", "json.decoder")
    with pytest.raises(AttributeError):
        crc._from_extension()
    assert crc.load()(b"123456789") == CHECK


def test_the_package_is_not_loaded_and_works_afterwards() -> None:
    program = (
        "import sys; from treecast.middleware.wire.crc import crc32c\n"
        "assert not [name for name in sys.modules if name.startswith(('crc32c', 'importlib.metadata'))]\n"
        "import crc32c as package\n"
        "print(crc32c(b'123456789'), package.crc32c(b'123456789'), package.CRC32CHash(b'123456789').checksum)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(CHECK)] * 3
