"""The admin address of an agent: /status as JSON, /metrics as Prometheus reads it, /healthz and /readyz.

It changes nothing. A request whose `Host` does not name this address gets 421 (`model.web_callers`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from treecast.middleware.api.discovery import Address
from treecast.middleware.model.web_callers import WebCallers

from .status import AgentStatus

_PLAIN = ("taken", "sent", "unwanted", "looped", "received", "published", "again", "connects", "held")


class AdminServer:
    """The server, from `start` to `close`. `status` is called at each request."""

    def __init__(self, status: Callable[[], AgentStatus]) -> None:
        self._status = status
        self._callers = WebCallers([socket.gethostname()])
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, address: Address) -> None:
        """Listens. Raises OSError."""
        app = web.Application(middlewares=[self._check])
        app.router.add_get("/status", self._get_status)
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/healthz", self._get_health)
        app.router.add_get("/readyz", self._get_ready)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, address.host, address.port).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _check(
        self,
        request: web.Request,
        handler: Handler,
    ) -> web.StreamResponse:
        reached = request.transport.get_extra_info("sockname") if request.transport is not None else None
        asked = request.headers.get("Host")
        if asked is not None and isinstance(reached, tuple) and not self._callers.knows(asked, reached[0]):
            return web.Response(
                status=421, text="this agent does not have that name: call it by its address\n"
            )
        return await handler(request)

    async def _get_status(self, request: web.Request) -> web.Response:
        body = msgspec.json.encode(self._status())
        return web.Response(body=body, content_type="application/json")

    async def _get_metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(
            body=encode(_Observation(self._status())),
            headers={"Content-Type": content_type},
        )

    async def _get_health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _get_ready(self, request: web.Request) -> web.Response:
        found = self._status()
        if found.serving:
            return web.Response(text="ready\n")
        said = "; ".join(f"{one.what}: {one.detail}" for one in found.troubles)
        return web.Response(status=503, text=f"{said or 'it starts'}\n")


class _Observation:
    """One scrape, in the form of a registry for prometheus-client's encoders."""

    def __init__(self, status: AgentStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        found, counters = self._status, self._status.counters
        for name in _PLAIN:
            metric = CounterMetricFamily(f"treecast_agent_{name}", f"Agent: {name}, messages.")
            metric.add_metric([], getattr(counters, name))
            yield metric
        for name, reasons in (
            ("refused_here", counters.refused_here),
            ("refused_there", counters.refused_there),
        ):
            metric = CounterMetricFamily(
                f"treecast_agent_{name}", f"Agent: {name}, messages.", labels=["reason"]
            )
            for reason, count in reasons.items():
                metric.add_metric([reason], count)
            yield metric
        levels = {
            "lag": found.lag,
            "owed": found.owed,
            "spool_bytes": found.spool_bytes,
            "connected": found.connected,
            "serving": found.serving,
            "troubles": len(found.troubles),
        }
        for name, value in levels.items():
            gauge = GaugeMetricFamily(f"treecast_agent_{name}", f"Agent: {name}, now.")
            gauge.add_metric([], value)
            yield gauge
