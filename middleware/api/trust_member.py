"""`Member`: a host's part in a secured cluster while its process runs. It follows the authority, so keys and
expulsions arrive within milliseconds, and renews its certificate when a third of its time is left.

A daemon and an agent are members alike; where the authority is, in a daemon, there is nothing to follow.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from . import trust_client
from .coordinator_client import CoordinatorClient
from .lasting import BackOff
from .one_time_token import OneTimeToken
from .private_file import write_private
from .trust import Trust
from .trust_calls import Joined

RENEW_SECONDS: Final = 132 * 86_400.0  # before the end of a certificate
_LOOK: Final = 3600.0  # seconds between looks at the certificate's end

_log = Log(__name__)


class Member:
    """The host whose trust it is, from `open` to `close`."""

    def __init__(
        self,
        trust: Trust,
        addresses: list[str],
        renew: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`addresses`: numbers, for the certificate. `renew`: instead of a call of the authority; raises
        TreecastError, or OSError.
        """
        self.trust = trust
        self.addresses = addresses
        self.not_renewed = ""  # why, if that was tried
        self._renew = renew or self._by_call
        self._target = ""
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, target: str, *, follows: bool = True) -> None:
        """Begins to follow the authority at `target` (HOST:PORT,...). Returns when keys are known: a new host
        waits for them.
        """
        self._target = target
        self._tasks.append(asyncio.create_task(self._renew_in_time()))
        if not follows:
            return
        self._tasks.append(asyncio.create_task(self._follow()))
        if not self.trust.keys.generation:
            known = asyncio.Event()
            heard = partial(_set, known)
            self.trust.on_keys.append(heard)
            await known.wait()
            self.trust.on_keys.remove(heard)

    async def close(self) -> None:
        """Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def client(self, target: str) -> CoordinatorClient:
        """Returns a client of the coordinator, which calls by this host's certificate."""
        cluster_id, secured = self.trust.identity.cluster_id, self.trust.channel_credentials()
        made = CoordinatorClient(target, None, cluster_id=cluster_id, secured=secured)
        self.trust.on_renewed.append(lambda: made.use(self.trust.channel_credentials()))
        return made

    async def _follow(self) -> None:
        """Follows the keys for ever, at one coordinator after the other."""
        rng = random.Random()  # nosec B311  # pauses, no secrets
        back_off, targets, said = BackOff(rng, longest=2.0), self._target.split(","), ""
        while True:
            target = targets[0].strip()
            try:
                async for keys in trust_client.follow(target, self.trust):
                    if keys is not None:
                        self.trust.learn(keys)
                    self.trust.trouble = said = ""
                    back_off.reset()
            except TreecastError as error:
                targets = [*targets[1:], target]
                if error.fault is Fault.POLICY_VIOLATION:
                    self.trust.trouble = f"the authority refuses this host: {error}"
                if str(error) != said:
                    said = str(error)
                    _log.warning("keys are not followed", reason=error)
            await asyncio.sleep(back_off.pause())

    async def _renew_in_time(self) -> None:
        """Looks at the end of this host's certificate for ever. A renewal that fails is tried again; keys are
        followed meanwhile.
        """
        while True:
            try:
                await self._renew_if_due()
                self.not_renewed = ""
            except (TreecastError, OSError) as error:
                self.not_renewed = str(error)
                _log.warning("certificate is not renewed", reason=error)
            await asyncio.sleep(_LOOK)

    async def _renew_if_due(self) -> None:
        if self.trust.identity.until - time.time() < RENEW_SECONDS:
            await self._renew()
            _log.info("certificate renewed", until=int(self.trust.identity.until))

    async def _by_call(self) -> None:
        if not self._target:
            raise TreecastError(
                Fault.INVALID_REQUEST,
                "the address of the coordinator is not known: start with --join HOST:PORT",
            )
        await trust_client.renew(self._target.split(",")[0].strip(), self.trust, self.addresses)


def _set(known: asyncio.Event, keys: object) -> None:
    known.set()


async def join_patiently(
    target: str, given: str, name: str, fabric: str, data: Path, users: Path | None = None
) -> None:
    """Joins a secured cluster by the one-time token `given`. Waits while nobody answers. `users`: where this
    host's file of users is to be, if it takes one. Raises TreecastError, or OSError.
    """
    rng = random.Random()  # nosec B311  # pauses, no secrets
    back_off, said = BackOff(rng, longest=2.0), False
    keep = partial(_keep_users, users)
    while True:
        try:
            token = OneTimeToken.parse(given)
            first = target.split(",")[0].strip()
            joined = await trust_client.join(first, token, name, own_addresses(fabric), data, keep)
            _log.info("host has a certificate", host=name, cluster=joined.cluster_id)
            return
        except TreecastError as error:
            if error.fault is not Fault.COORDINATOR_UNAVAILABLE:
                raise
            if not said:
                said = True
                advice = "check the address of the coordinator, and the daemon there"
                _log.warning("waiting for the coordinator", reason=error, advice=advice)
        await asyncio.sleep(back_off.pause())


def _keep_users(users: Path | None, joined: Joined) -> None:
    if users is not None and joined.users and not users.exists():
        write_private(users, joined.users.encode())


def own_addresses(fabric: str) -> list[str]:
    """Returns the addresses of a host's certificate but loopback: that of its fabric, if a number."""
    host = fabric.rpartition(":")[0].strip("[]")
    is_number = host.replace(".", "").isdigit() or ":" in host
    return [host] if is_number and host not in ("0.0.0.0", "::", "127.0.0.1", "::1") else []  # nosec B104
