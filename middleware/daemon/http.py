"""The pages of the admin address. Imported on its first connection; see `admin`.

/metrics   Prometheus' text format, or OpenMetrics on request
/status    the control service's Status, as JSON
/api/...   RabbitMQ's management calls, if the AMQP face is on; see `shims/amqp/management.py`
/healthz   200 while the event loop runs
/readyz    200 while the daemon serves; 503 while it shuts down, no other host accepts it, the disk refuses
           writes, or clients are turned away. With ?for=reads it is 200 even if the disk refuses writes

Each answers 421 to a request for another host, and 403 to a change that a foreign web page asks for
(`model.web_callers`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from aiohttp import web

import treecast
from treecast.middleware.api.messages import as_dict
from treecast.middleware.model.web_callers import WebCallers

from .admin_connections import AdminConnections
from .host_names import own_names
from .metrics import Observed, encode
from .status import Subject, ends_of, take_status
from .view import list_groups, list_partitions, view_process

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_LONGEST_NAME = 200  # characters of a foreign name that are quoted
_READS = ("GET", "HEAD", "OPTIONS")


def _always(group_id: str) -> bool:
    return True


class Pages:
    """The handlers of one daemon's pages."""

    def __init__(self, subject: Subject, connections: AdminConnections) -> None:
        self._subject = subject
        self._connections = connections
        settings = subject.settings
        self._callers = WebCallers(own_names(settings, settings.admin, settings.admin_names))

    @web.middleware
    async def note_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Tells the limits of the listener that the connection has sent a request."""
        self._connections.known(request)
        return await handler(request)

    @web.middleware
    async def check_caller(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers 421 for a name that is not this host's, and 403 to a foreign page that wants a change. A
        Unix socket has no names, and no browser reaches it.
        """
        reached = request.transport.get_extra_info("sockname") if request.transport is not None else None
        if not isinstance(reached, tuple):
            return await handler(request)
        headers = request.headers
        asked, origin = headers.get("Host"), headers.get("Origin", "")
        if asked is not None and not self._callers.knows(asked, reached[0]):
            return web.Response(
                status=421,
                text=f"this daemon does not know itself as {asked[:_LONGEST_NAME]!r}: call it by its address,"
                " as localhost, or by its own name; --admin-names allows others\n",
            )
        site = headers.get("Sec-Fetch-Site", "")
        if request.method not in _READS and not self._callers.admits(asked or "", origin, site):
            return web.Response(
                status=403,
                text=f"a web page of another site ({origin[:_LONGEST_NAME]!r}) may not change anything here:"
                " use a page of this address, or a tool\n",
            )
        return await handler(request)

    async def index(self, request: web.Request) -> web.Response:
        links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in PATHS[1:])
        return web.Response(
            text=f"<!doctype html><title>Treecast</title><ul>{links}</ul>", content_type="text/html"
        )

    async def metrics(self, request: web.Request) -> web.Response:
        subject, joined = self._subject, self._subject.joined
        most = subject.settings.metrics_listed
        here = joined.is_home if joined is not None else _always
        groups = await list_groups(subject.cluster, here, most)
        streams = joined.streams() if joined is not None else ()
        partitions = await list_partitions(subject.cluster, most)
        observed = Observed(
            info={
                "version": treecast.__version__,
                "name": subject.settings.name,
                "cluster_id": subject.cluster.cluster_id,
            },
            started_at=subject.started_at,
            counters=subject.counters,
            partitions=partitions,
            groups=groups.listed,
            process=view_process(),
            hosts=joined.hosts() if joined is not None else (),
            streams=streams[:most],
            calls=joined.calls() if joined is not None else None,
            coordinator=joined.coordinator() if joined is not None else None,
            troubles=subject.troubles,
            certificates=ends_of(subject),
            left_out={
                "partitions": partitions.left_out,
                "groups": groups.groups_left_out,
                "offsets": groups.offsets_left_out,
                "streams": max(len(streams) - most, 0),
            },
        )
        body, content_type = encode(observed, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def status(self, request: web.Request) -> web.Response:
        return web.json_response(as_dict(await take_status(self._subject, time.time())))

    async def healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        subject = self._subject
        if not subject.ready:
            return web.Response(status=503, text="shutting down\n")
        texts = [subject.joined.isolation()] if subject.joined is not None else []
        troubles = subject.troubles
        if troubles is not None:
            reads = request.query.get("for") == "reads"
            texts += [troubles.descriptors.text] if reads else troubles.texts()
        if found := "\n".join(text for text in texts if text):
            return web.Response(status=503, text=f"{found}\n")
        return web.Response(text="ready\n")


PATHS = ("/", "/metrics", "/status", "/healthz", "/readyz")


def application(subject: Subject, connections: AdminConnections) -> web.Application:
    """Returns the pages for `connections`."""
    pages = Pages(subject, connections)
    app = web.Application(middlewares=[pages.note_request, pages.check_caller])
    for mounted in subject.pages:
        app.router.add_route("*", mounted.path, mounted.handler(connections.visitors.memory))
    handlers = (pages.index, pages.metrics, pages.status, pages.healthz, pages.readyz)
    app.add_routes([web.get(path, handler) for path, handler in zip(PATHS, handlers, strict=True)])
    return app


def runner(subject: Subject, connections: AdminConnections) -> web.AppRunner:
    """Returns the runner that serves the pages to `connections`."""
    return web.AppRunner(
        application(subject, connections),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=1.0,
        keepalive_timeout=15.0,
    )
