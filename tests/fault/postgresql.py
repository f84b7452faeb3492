"""Two coordinators on PostgreSQL with a synchronous standby; coordinators and servers are killed under load.

    python -m tests.fault.postgresql --rounds 40
    python -m tests.fault.postgresql --rounds 10 --kinds promoted,paused --seed 7

A round is one of these, and `all` of them in turn:

    killed    the coordinator that leads is killed, and started again
    stopped   PostgreSQL is stopped in order, and started again
    crashed   PostgreSQL ends as after a crash, and is started again
    promoted  the primary is lost, its standby promoted, and a new standby made
    paused    the coordinator that leads is stopped until another leads, and goes on then

Callers of each coordinator write down every answer with its epoch. After each round everything answered has
to be there: topics with their ids, items of homes, and no producer id twice. No epoch may belong to two
processes. And no answer of an epoch may come to a call that began after an answer of a later epoch: two
coordinators would have decided at once.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.core.ports import free_port
from tests.postgresql import PostgresServer, both

from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.entries import TopicEntry
from treecast.middleware.api.join_token import JoinToken, new_token
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control.server import new_id
from treecast.middleware.model.errors import Fault, TreecastError

WAIT = 120.0
CLI = (sys.executable, "-m", "treecast.middleware.cli")
LATER = {Fault.COORDINATOR_UNAVAILABLE, Fault.UNKNOWN_MEMBER, Fault.STORAGE, Fault.NOT_COORDINATOR}


@dataclass
class Answers:
    """All answers of all coordinators, and the faults found in them."""

    topics: dict[str, bytes] = field(default_factory=dict)
    items: dict[bytes, bytes] = field(default_factory=dict)
    blocks: list[range] = field(default_factory=list)
    epochs: dict[int, str] = field(default_factory=dict)  # -> the process
    highest: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, epoch: int, process: str, floor: int) -> None:
        """An answer came. `floor`: the highest epoch of any answer when its call began."""
        owner = self.epochs.setdefault(epoch, process)
        if owner != process:
            self.problems.append(f"epoch {epoch} is of {owner} and of {process}")
        if epoch < floor:
            self.problems.append(f"{process} decided in epoch {epoch} after epoch {floor} had begun")
        self.highest = max(self.highest, epoch)


class Coordinator:
    """One `treecast coordinator`, at an address that it keeps."""

    def __init__(self, folder: Path, name: str, store: str, token: JoinToken) -> None:
        self.name = name
        self.address = f"127.0.0.1:{free_port()}"
        self.token = token
        self._data = folder / name
        self._log = folder / f"{name}.log"
        (folder / "token").write_text(token.format())
        (folder / "store").write_text(store)
        self._command = [*CLI, "coordinator", "--data", str(self._data), "--control", self.address]
        self._command += ["--store", f"@{folder / 'store'}", "--join-token", f"@{folder / 'token'}"]
        self._lives = itertools.count(1)
        self.life = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready "), self.log()
        self.life = f"{self.name} (life {next(self._lives)})"

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def send(self, what: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(what)

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


class Load:
    """Calls one coordinator again and again, and writes down what it answers."""

    def __init__(self, coordinator: Coordinator, answers: Answers) -> None:
        self._coordinator = coordinator
        self._answers = answers
        self._client = CoordinatorClient(coordinator.address, coordinator.token, timeout=20)
        self._session: pb.HostSession | None = None

    async def run(self) -> None:
        try:
            for number in itertools.count():
                try:
                    await self._once(f"{self._coordinator.name}.{number}")
                except TreecastError as error:
                    if error.fault not in LATER:
                        raise
                    self._session = None
                    await asyncio.sleep(0.05)
        finally:
            await self._client.close()

    async def _once(self, name: str) -> None:
        if self._session is None:
            host = self._coordinator.name
            hello = pb.AttachRequest(name=host, instance=host, address="127.0.0.1:1", version="1")
            self._session = (await self._asked(self._client.attach, hello)).session
        topic = pb.CreateTopicEntryRequest(name=name, partitions=1)
        made = (await self._asked(self._client.create_topic, topic)).topic
        self._answers.topics[made.name] = made.topic_id
        self._answers.blocks.append(await self._asked(self._client.producer_ids, self._session, 3))
        home = await self._asked(self._client.group_home, self._session, self._coordinator.name)
        item = pb.HomeItem(key=name.encode(), value=name.encode())
        write = pb.HomeWrite(kind=home.kind, id=home.id, epoch=home.epoch, items=[item])
        if not await self._asked(self._client.put_home_state, self._session, [write]):
            self._answers.items[item.key] = item.value
        await self._asked(self._client.renew, self._session)

    async def _asked(self, call: Callable[..., Any], *arguments: Any) -> Any:
        floor, life = self._answers.highest, self._coordinator.life
        answer = await call(*arguments)
        self._answers.note(self._client.epoch, life, floor)
        return answer


class Site:
    """Two servers, two coordinators, and what happens to them."""

    def __init__(self, folder: Path) -> None:
        self.answers = Answers()
        self.primary = PostgresServer()
        self.standby: PostgresServer | None = None
        self.coordinators: list[Coordinator] = []
        self.token = new_token(new_id())
        self._folder = folder

    async def open(self, *, replicated: bool = True) -> None:
        self.primary.start()
        self.primary.make_database("treecast")
        if replicated:
            await asyncio.to_thread(self._make_standby, free_port())
        servers = [server for server in (self.primary, self.standby) if server is not None]
        store = both(servers, "treecast")
        self.coordinators = [Coordinator(self._folder, name, store, self.token) for name in ("one", "two")]
        for coordinator in self.coordinators:
            coordinator.start()

    def _make_standby(self, port: int) -> None:
        self.standby = PostgresServer(of=self.primary, port=port)
        self.standby.start()
        self.primary.wait_for_standby()

    def close(self) -> None:
        for coordinator in self.coordinators:
            coordinator.kill()
        for server in (self.primary, self.standby):
            if server is not None:
                server.close()

    @property
    def addresses(self) -> str:
        return ",".join(coordinator.address for coordinator in self.coordinators)

    async def leader(self) -> Coordinator:
        """Waits until one leads."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            for coordinator in self.coordinators:
                if await self._leads(coordinator):
                    return coordinator
            await asyncio.sleep(0.1)
        raise AssertionError("nobody leads: " + "\n".join(each.log() for each in self.coordinators))

    async def _leads(self, coordinator: Coordinator) -> bool:
        client = CoordinatorClient(coordinator.address, self.token, timeout=1)
        try:
            return (await client.status()).role == "leads"
        except TreecastError:
            return False
        finally:
            await client.close()

    # --- rounds

    async def killed(self) -> None:
        leader = await self.leader()
        leader.kill()
        await asyncio.to_thread(leader.start)

    async def stopped(self) -> None:
        await asyncio.to_thread(self.primary.stop)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(self.primary.start)

    async def crashed(self) -> None:
        await asyncio.to_thread(self.primary.stop, signal.SIGQUIT)
        await asyncio.to_thread(self.primary.start)

    async def promoted(self) -> None:
        lost, self.primary, self.standby = self.primary, self.standby or self.primary, None
        await asyncio.to_thread(lost.stop, signal.SIGQUIT)
        await asyncio.to_thread(self.primary.promote)
        await asyncio.to_thread(lost.close)
        await self.leader()
        await asyncio.to_thread(self._make_standby, lost.port)

    async def paused(self) -> None:
        leader = await self.leader()
        leader.send(signal.SIGSTOP)
        try:
            await until(lambda: self._is_not(leader))
        finally:
            leader.send(signal.SIGCONT)

    async def _is_not(self, coordinator: Coordinator) -> bool:
        return await self.leader() is not coordinator

    # --- what has to hold

    async def check(self) -> None:
        """Everything answered is there."""
        await self.leader()
        client = CoordinatorClient(self.addresses, self.token, timeout=20)
        try:
            await until(lambda: self._checked(client))
        finally:
            await client.close()

    async def _checked(self, client: CoordinatorClient) -> bool:
        topics, items = dict(self.answers.topics), dict(self.answers.items)
        kept: dict[bytes, bytes] = {}
        try:
            async with aclosing(client.watch()) as updates:
                found = await anext(updates)
            for name in ("one", "two"):
                hello = pb.AttachRequest(name=name, instance=name, address="127.0.0.1:1", version="1")
                session = (await client.attach(hello)).session
                kept |= await client.get_home_state(session, await client.group_home(session, name))
        except TreecastError as error:
            if error.fault not in LATER:
                raise
            return False
        there = {
            change.key: change.entry.topic_id.bytes
            for change in found.changes
            if isinstance(change.entry, TopicEntry)
        }
        self._compare("topics", topics, there)
        self._compare("items of homes", items, kept)
        numbers = [number for block in self.answers.blocks for number in block]
        if len(set(numbers)) != len(numbers):
            self.answers.problems.append("a producer id was given twice")
        return True

    def _compare(self, what: str, answered: dict[Any, bytes], there: dict[Any, bytes]) -> None:
        lost = [key for key, value in answered.items() if there.get(key) != value]
        if lost:
            self.answers.problems.append(f"{len(lost)} {what} are lost, as {lost[0]!r}")


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + WAIT
    while not await holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def _has(answers: Answers, topics: int) -> bool:
    return len(answers.topics) >= topics


KINDS = ("killed", "stopped", "crashed", "promoted", "paused")


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Site]:
    site = Site(folder)
    loads: list[asyncio.Task[None]] = []
    try:
        await site.open()
        await site.leader()
        loads = [asyncio.create_task(Load(each, site.answers).run()) for each in site.coordinators]
        yield site
        for load in loads:
            assert not load.done(), load.exception()
    finally:
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        site.close()


async def run(rounds: Sequence[str], seed: int, folder: Path, *, tell: Callable[[str], None]) -> Answers:
    """Does the rounds, under load, and checks after each."""
    rng = random.Random(seed)
    async with opened(folder) as site:
        for number, kind in enumerate(rounds, 1):
            await until(partial(_has, site.answers, len(site.answers.topics) + 5))
            await asyncio.sleep(rng.random() / 4)
            await getattr(site, kind)()
            await site.check()
            found = site.answers
            tell(f"{number}: {kind}: {len(found.topics)} topics, {len(found.epochs)} epochs with answers")
            if found.problems:
                break
    return site.answers


def main() -> int:
    description, _, epilog = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kinds", default="all", help="names separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds = KINDS if options.kinds == "all" else tuple(options.kinds.split(","))
    rounds = list(itertools.islice(itertools.cycle(kinds), options.rounds))
    with tempfile.TemporaryDirectory(prefix="treecast-coordinators-") as folder:
        answers = asyncio.run(
            run(rounds, options.seed, Path(folder), tell=lambda line: print(line, flush=True))
        )
    counted = {"rounds": len(rounds), "topics": len(answers.topics), "items": len(answers.items)}
    counted |= {"producer id blocks": len(answers.blocks), "epochs": len(answers.epochs)}
    print(json.dumps(counted | {"problems": answers.problems}))
    return 1 if answers.problems else 0


if __name__ == "__main__":
    sys.exit(main())
