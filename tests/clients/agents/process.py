"""An agent as a process, for tests: started, asked for its status, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from bench.core.ports import free_port


class AgentProcess:
    """`treecast agent KIND`. `table`: the table of its broker, as TOML. `patience`: seconds until a test
    gives up; nothing is asserted about it."""

    def __init__(
        self,
        kind: str,
        site: str,
        folder: Path,
        join: str,
        token: Path,
        agent: str,
        table: str,
        patience: float,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.site = site
        self.admin = free_port()
        self.log = folder / f"{site}.log"
        self.config = folder / f"{site}.toml"
        self.config.write_text(
            f'[agent]\nname = "{site}"\ndata = "{folder / site}"\njoin = "{join}"\njoin_token = "@{token}"\n'
            f'admin = "127.0.0.1:{self.admin}"\n{agent}\n{table}\n'
        )
        self.process: subprocess.Popen[bytes] | None = None
        self._kind = kind
        self._patience = patience

    def command(self) -> list[str]:
        module = [sys.executable, "-m", "treecast.middleware.cli", "agent", self._kind]
        return [*module, "--config", str(self.config)]

    def start(self, *, wait: bool = True) -> Self:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TREECAST_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=log, env=environment
            )
        if wait:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line.startswith(b"ready "), self.log.read_text()
        return self

    def _asked(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/status", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    def status(self) -> dict[str, Any]:
        return self.until(bool, "it does not answer")

    def until(self, condition: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """Returns the first status for which the condition holds."""
        deadline = time.monotonic() + self._patience
        while not ((found := self._asked()) and condition(found)):
            assert time.monotonic() < deadline, f"{what}: {found}\n{self.log.read_text()[-4000:]}"
            time.sleep(0.05)
        return found

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self._gone()

    def stop(self) -> int:
        """Returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self._gone()

    def _gone(self) -> int:
        assert self.process is not None
        code = self.process.wait(self._patience)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
