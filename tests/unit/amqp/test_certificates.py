"""When a certificate ends, as OpenSSL reads it."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from treecast.shims.amqp.certificates import ends_at


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
@pytest.mark.parametrize("days", [1, 400, 20_000])  # the last is beyond 2049: another form of time
def test_the_end_is_openssls(tmp_path: Path, days: int) -> None:
    path = tmp_path / "certificate"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", str(tmp_path / "key"), "-out", str(path), "-days", str(days), "-subj", "/O=a/CN=b"),
        ],
        check=True,
        capture_output=True,
    )
    said = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    text = path.read_text()
    assert ends_at(text) == ssl.cert_time_to_seconds(said.stdout.strip().partition("=")[2])
    assert ends_at(f"comment\n{text}{text}") == ends_at(text)
    der = ssl.PEM_cert_to_DER_cert(text)
    for size in range(1, len(der), 7):
        cut = ssl.DER_cert_to_PEM_cert(der[:size])
        try:
            ends_at(cut)
        except ValueError:
            pass


@pytest.mark.parametrize("text", ["", "no certificate", f"{ssl.PEM_HEADER}\n{ssl.PEM_FOOTER}"])
def test_no_certificate(text: str) -> None:
    with pytest.raises(ValueError):
        ends_at(text)
