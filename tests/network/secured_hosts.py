"""Three secured hosts of a lab, under a steady load of all faces."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from treecast.middleware.dataplane.lab.lab import Lab

from .lan import CONTROL, KAFKA, MQTT, PATIENCE, LanHosts
from .pulse import Place, Pulse

AMQP = 5672
PASSWORD = "a password of the administrator"  # nosec B105
HOSTS = ("h1", "h2", "h3")
TLS_FACES = {"kafka": 9093, "mqtt": 8883, "amqp": 5671}
_FACES = {"kafka": KAFKA, "mqtt": MQTT, "amqp": AMQP}


class SecuredHosts(LanHosts):
    """Made by `treecast init --secure` at the first host, and one join each at the others. Plain faces are on
    loopback of each namespace. `flags`: further ones of all.
    """

    def __init__(
        self,
        made: Lab,
        folder: Path,
        flags: Sequence[str] = (),
        tls: Callable[[str], Path] | None = None,
    ) -> None:
        """`tls`: a file with certificate and key for the TLS faces of a host, if it is to have any."""
        super().__init__(made, folder, HOSTS, flags)
        (folder / "password").write_text(PASSWORD + "\n")
        words = ("--name", "h1", "--address", made.ipv4("h1"), "--password-file", str(folder / "password"))
        self.run("init", "--secure", *words)
        for host in HOSTS:
            more = {"amqp": f"127.0.0.1:{AMQP}"}
            for face, port in TLS_FACES.items() if tls is not None else ():
                assert tls is not None
                more |= {f"{face}_tls": f"127.0.0.1:{port}", f"{face}_tls_certificate": str(tls(host))}
            if host == "h1":
                self.start(host, **more)
            else:
                (folder / f"once-{host}").write_text(self.run("token", "create"))
                self.start(host, **more, join_token=f"@{folder / f'once-{host}'}")

    def pulse(self, host: str, way: str, authority: str = "") -> Pulse:
        """Starts `tests.network.pulse` at a host, as the administrator; over TLS with an `authority`."""
        ports = TLS_FACES if authority else _FACES
        faces = {face: f"127.0.0.1:{port}" for face, port in ports.items()}
        place = Place(**faces, user="admin", password=PASSWORD, name=host, authority=authority)
        return Pulse(lambda words: self.lab.start(host, *words, stdin=subprocess.PIPE), way, place)

    @property
    def control(self) -> str:
        return f"{self.lab.ipv4('h1')}:{CONTROL}"

    def run(self, *words: str) -> str:
        """Runs a command of the administrator at the first host."""
        done = self.command("h1", *words, "--data", str(self.folder / "h1"))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def heard(self, host: str, text: str) -> float:
        """Waits until a host's log has a text. Returns when it was seen, in seconds since 1970."""
        end = time.monotonic() + PATIENCE
        while text not in self.log(host):
            assert time.monotonic() < end, f"{host} never says {text!r}"
            time.sleep(0.01)
        return time.time()
