"""A daemon with TLS at all faces, and everything that its clients log in with."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from tests.authority import Authority
from tests.provider import AUDIENCE, Provider

from treecast.middleware.broker.access import (
    Content,
    OAuth,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
    Rule,
    User,
)
from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.daemon.users_file import change_users
from treecast.middleware.model.scram import SALT_BYTES, SHA256, verifier

from .case import KINDS, LONGEST_S, Case

USERS: Final = ("alice", "leaver")
_FACES: Final = ("kafka", "mqtt", "amqp")
_RIGHTS: Final = (Operation.WRITE, Operation.CREATE, Operation.READ)


def user(name: str) -> User:
    made = verifier(SHA256, f"the password of {name}".encode(), bytes(SALT_BYTES))
    return User(name, {SHA256: made})


def may(name: str) -> list[Rule]:
    """Returns the rules by which a user may publish `orders` at each face."""
    where = [(ResourceKind.TOPIC, "orders"), (ResourceKind.EXCHANGE, "amq.topic")]
    return [
        Rule(name, Permission.ALLOW, operation, kind, Pattern.LITERAL, resource)
        for kind, resource in where
        for operation in (_RIGHTS if kind is ResourceKind.TOPIC else (Operation.WRITE,))
    ]


class Site:
    """Two daemons with one file of users: one asks clients for certificates, and the other for passwords."""

    def __init__(self, folder: Path, openssl: str) -> None:
        import jwt

        self._provider = Provider(jwt)
        self._authority = authority = Authority(folder, openssl)
        other = Authority(folder, openssl, "other")
        served = authority.signs("server", "/CN=server", "IP:127.0.0.1,DNS:localhost")
        self._certificates = {
            "alice": authority.signs("alice", "/O=shop/CN=Alice"),
            "expired": authority.signs("expired", "/O=shop/CN=Alice", days=-1),
            "stranger": other.signs("stranger", "/O=shop/CN=Alice"),
        }
        self._users = folder / "users.toml"
        flags = ["--stare", "off", "--admin", "off", "--access-file", str(self._users)]
        asking = []
        for face in _FACES:
            flags += [f"--{face}-tls", "127.0.0.1:0", f"--{face}-tls-certificate", str(served)]
            asking += [f"--{face}-tls-authority", str(authority.path)]
        self.daemons = {
            "password": DaemonProcess(folder / "password", flags),
            "certificate": DaemonProcess(folder / "certificate", [*flags, *asking]),
        }
        keys = folder / "jwks.json"
        keys.write_text(self._provider.jwks())
        self._content = Content(
            {name: user(name) for name in USERS},
            tuple(rule for name in USERS for rule in may(name)),
            ("RULE:^CN=([^,]+),O=shop$/$1/L",),
            oauth=OAuth(str(keys), AUDIENCE),
        )
        self._write(self._content)

    def _write(self, content: Content) -> None:
        change_users(self._users, lambda _: content)

    def case(self, kind: str) -> Case:
        given = dict(KINDS[kind].given)
        if "certificate" in given:
            given["certificate"] = str(self._certificates[str(given["certificate"])])
        if "token" in given:
            given["token"] = self._provider.token({}, now=time.time())
        daemon = self.daemons["certificate" if "certificate" in given else "password"]
        faces = {face: daemon.ready[f"{face}-tls"] for face in _FACES}
        return msgspec.convert({**faces, "authority": str(self._authority.path), **given}, Case)

    def told(self, client: str, kind: str) -> str:
        """Runs a client through a case. Returns what it says."""
        case, module = self.case(kind), "tests.clients.security_table.one"
        command = [sys.executable, "-m", module, client, msgspec.json.encode(case).decode()]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
        try:
            if case.revoked and process.stdout.readline() == "published\n":
                users = {name: one for name, one in self._content.users.items() if name != case.user}
                self._write(msgspec.structs.replace(self._content, users=users))
                time.sleep(1.0)  # within which it counts
            out, _ = process.communicate("\n", timeout=2 * LONGEST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "no end"
        finally:
            if case.revoked:
                self._write(self._content)
        lines = [line for line in out.splitlines() if line.startswith("told ")]
        return lines[-1].removeprefix("told ") if lines else "it has ended without a word"


@contextmanager
def site(folder: Path, openssl: str) -> Iterator[Site]:
    made = Site(folder, openssl)
    try:
        for daemon in made.daemons.values():
            daemon.start()
        yield made
    finally:
        for daemon in made.daemons.values():
            if daemon.running:
                daemon.stop()
            daemon.clean_up()
