"""Secrets on the command line: found, hidden from `ps`, and warned of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from treecast.middleware.cli.app import run
from treecast.middleware.cli.command_line import secrets_of, warning

SHOWS = """
import sys
from treecast.middleware.cli import _hide_secrets
remarks = _hide_secrets(sys.argv[1:])
print(open("/proc/self/cmdline", "rb").read())
print(sys.argv)
print(*remarks)
"""


@pytest.mark.parametrize(
    ("arguments", "secrets"),
    [
        (["up", "--join-token", "treecast1.abc", "--name", "x"], {"--join-token": "treecast1.abc"}),
        (["up", "--join-token=treecast1.abc"], {"--join-token": "treecast1.abc"}),
        (["topics", "create", "t", "--token", "abc"], {"--token": "abc"}),
        (["coordinator", "--store", "postgresql://u:pw@h/d"], {"--store": "pw"}),
        (["copy-coordinator", "--store=postgresql://h/d?user=a&password=b"], {"--store": "b"}),
        (["up", "--join-token", "@/etc/token", "--name", "x"], {}),
        (["coordinator", "--store", "postgresql://u@h/d"], {}),
        (["coordinator", "--store", "@/etc/store"], {}),
        (["produce", "t", "--token"], {}),
        (["up", "--join-token", "--name", "x"], {}),
        (["consume", "token"], {}),
    ],
)
def test_what_counts_as_a_secret(arguments: list[str], secrets: dict[str, str]) -> None:
    assert secrets_of(arguments) == secrets


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep the command line elsewhere")
def test_others_do_not_see_it_and_the_command_does() -> None:
    secret = "treecast1.s3cr3t.ü"
    found = subprocess.run(
        [sys.executable, "-c", SHOWS, "up", "--join-token", secret, f"--store=postgresql://u:{secret}@h/d"],
        capture_output=True,
        check=True,
        text=True,
    )
    shown, kept, remark = found.stdout.splitlines()
    assert "s3cr3t" not in shown
    assert "--join-token" in shown
    assert kept.count(secret) == 2
    assert remark.startswith("--join-token, --store gave a secret on the command line")


def test_the_warning_names_what_to_do_instead() -> None:
    assert "--token @FILE" in warning(["--token"], hidden=True)
    assert "while this process runs" in warning(["--token"], hidden=False)


@pytest.mark.parametrize(
    "words",
    [
        ["restore-coordinator", "--from", "127.0.0.1:1", "--data", "{folder}", "--join-token", "nonsense"],
        ["status", "--coordinator", "127.0.0.1:1", "--join-token", "nonsense"],
        ["status", "--coordinator", "127.0.0.1:1", "--join-token", "@{folder}/missing"],
        ["restore-coordinator", "--from", "127.0.0.1:1", "--data", "{folder}", "--join-token", "@{folder}"],
    ],
)
def test_a_token_that_is_none_is_a_message(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([word.format(folder=tmp_path) for word in words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("treecast: --join-token")
    assert "copy it whole" in line or "cannot be read" in line


def test_a_place_that_nobody_may_write_to_is_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/srv/x")

    monkeypatch.setattr("treecast.middleware.cli.app.app", refuse)
    assert run(["restore-coordinator"]) == 1
    assert capsys.readouterr().err.startswith("treecast: /srv/x: Permission denied")
