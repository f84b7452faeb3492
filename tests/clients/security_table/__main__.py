"""Runs clients through all log-ins that a daemon knows, and through what goes wrong with them.

    python -m tests.clients.security_table                    prints the table
    python -m tests.clients.security_table --only pika,paho   of these clients
    python -m tests.clients.security_table --write            and writes it to docs/security-clients.md

Exits with 1 if a log-in that is to work does not, or one that is to be refused is served.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from .case import KINDS, WORKS
from .one import CLIENTS, FACES
from .site import site

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "security-clients.md"
_PACKAGES: Final = {"librdkafka": "confluent-kafka", "paho": "paho-mqtt"}
_ABOUT: Final = """# Log-ins of clients

This page shows what each client gets: for each log-in over TLS, and for each failure.
`python -m tests.clients.security_table --write` runs the clients, unmodified, and writes this page.
[Security](security.md) has the set-up. A dash: the protocol has no such log-in.

"""


def version(client: str) -> str:
    try:
        return importlib.metadata.version(_PACKAGES.get(client, client))
    except importlib.metadata.PackageNotFoundError:
        return ""


def wrong(told: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Returns the cells that are not as they should be. Pure."""
    return [
        f"{client}, {kind}: {text}"
        for client, row in told.items()
        for kind, text in row.items()
        if text and (text == WORKS) != KINDS[kind].fine
    ]


def table(told: Mapping[str, Mapping[str, str]], versions: Mapping[str, str]) -> str:
    """Returns the rows as a table for each group of columns, in Markdown. Pure."""
    groups = [[name for name in KINDS if KINDS[name].fine is fine] for fine in (True, False)]
    lines: list[str] = []
    for group in groups:
        titles = [KINDS[kind].title for kind in group]
        lines += [f"| client | {' | '.join(titles)} |", f"| --- |{' --- |' * len(group)}"]
        for client, row in told.items():
            cells = (row[kind].replace("|", "\\|") or "-" for kind in group)
            lines.append(f"| {f'{client} {versions[client]}'.strip()} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def run(names: Sequence[str], openssl: str) -> dict[str, dict[str, str]]:
    """Returns what each client is told, by kind; empty where its protocol knows no such log-in."""
    told: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="treecast-clients-") as folder, site(Path(folder), openssl) as at:
        for client in names:
            row = told[client] = {}
            for kind, one in KINDS.items():
                row[kind] = at.told(client, kind) if FACES[client] in one.faces else ""
                print(f"{client}, {one.title}: {row[kind] or '-'}", file=sys.stderr, flush=True)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(CLIENTS), help="names, separated by commas")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    chosen = parser.parse_args()
    names = chosen.only.split(",")
    if unknown := [name for name in names if name not in CLIENTS]:
        parser.error(f"no such clients: {', '.join(unknown)}; there are {', '.join(CLIENTS)}")
    openssl = shutil.which("openssl")
    if openssl is None:
        parser.error("the program openssl is missing, which makes the certificates")
    told = run(names, openssl)
    shown = table(told, {client: version(client) for client in told})
    print(shown)
    if chosen.write:
        PAGE.write_text(_ABOUT + shown.rstrip() + "\n")
    for text in (found := wrong(told)):
        print(f"wrong: {text}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
