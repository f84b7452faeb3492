"""The management calls about queues."""

from __future__ import annotations

from treecast.middleware.broker.queues import needs
from treecast.middleware.model.rights import QUEUE

from .management_call import CHANGED, Call, Response, put_response, table_of, truth_of
from .management_definitions import Document, Rows
from .management_views import Views


class QueueCalls:
    """The queues, apart from their messages."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def every(self, call: Call) -> Rows:
        return [
            self._views.queue(vhost, queue, call.now)
            for vhost in call.vhosts()
            for queue in vhost.queues.values()
            if not (call.request.far and queue.home)
        ]

    def one(self, call: Call) -> Document:
        vhost = call.vhost()
        return self._views.queue_detail(vhost, call.queue(vhost), call.now, call.scope())

    def put(self, call: Call) -> Response:
        vhost, name = call.vhost(used=True), call.name("queue")
        body = call.body()
        arguments = table_of(body)
        call.permit(vhost, needs.to_declare_queue(vhost, name, arguments))
        new = name not in vhost.queues
        queue = vhost.queue_definitions.declare(
            name,
            durable=truth_of(body, "durable", True),
            auto_delete=truth_of(body, "auto_delete", False),
            arguments=arguments,
            now=call.now,
        )
        vhost.watch(queue)
        return put_response(new)

    def delete(self, call: Call) -> Response:
        vhost = call.vhost(used=True)
        queue = call.queue(vhost)
        call.permit(vhost, needs.to_delete(QUEUE, queue.name))
        unused, empty = call.flag("if-unused"), call.flag("if-empty")
        vhost.queue_definitions.delete(queue.name, None, if_unused=unused, if_empty=empty)
        return CHANGED

    def purge(self, call: Call) -> Response:
        vhost = call.vhost(used=True)
        queue = call.queue(vhost)
        call.permit(vhost, needs.to_read(queue.name))
        vhost.router.owned(queue.name, None).purge()
        return CHANGED
