"""The management calls that check health."""

from __future__ import annotations

import json
from typing import Final

from .management_call import Call, Response, bad_request, number_of
from .management_definitions import Document
from .management_views import Views
from .session_host import AmqpHost

_DAY: Final = 86_400
_UNITS: Final = {"day": _DAY, "week": 7 * _DAY, "month": 30 * _DAY, "year": 365 * _DAY}  # seconds


class HealthCalls:
    """The health checks."""

    def __init__(self, host: AmqpHost, views: Views) -> None:
        self._host = host
        self._views = views

    def healthy(self, call: Call) -> Document:
        if "vhost" in call.arguments:
            call.vhost()
        return {"status": "ok"}

    def alarms(self, call: Call) -> Document | Response:
        if not self._host.alarm:
            return {"status": "ok"}
        reason = f"There are alarms in effect: {self._host.alarm}"
        body = {"status": "failed", "reason": reason, "alarms": [self._host.alarm]}
        return Response(503, json.dumps(body).encode())

    def local_alarms(self, call: Call) -> Document | Response:
        return self.alarms(call)

    def certificate_expiration(self, call: Call) -> Document | Response:
        """Fails if the certificate of a listener ends within the time of the path."""
        unit = _UNITS.get(call.arguments["unit"].removesuffix("s"))
        if unit is None:
            raise bad_request(f"time unit not recognised: one of {', '.join(f'{one}s' for one in _UNITS)}")
        within = number_of(call.arguments, "within") * unit
        ending = [
            {"protocol": protocol, "seconds": int(left)}
            for protocol, left in self._views.certificates()
            if left < within
        ]
        if not ending:
            return {"status": "ok"}
        return _unhealthy("Certificates expiring", expired=ending)

    def port_listener(self, call: Call) -> Document | Response:
        ports = {str(port): port for _, _, port in self._views.listeners()}
        asked = call.arguments["port"]
        if asked in ports:
            return {"status": "ok", "port": ports[asked]}
        return _unhealthy("No active listener", missing=asked, ports=sorted(ports.values()))

    def protocol_listener(self, call: Call) -> Document | Response:
        protocols = {protocol for protocol, _, _ in self._views.listeners()}
        asked = call.arguments["protocol"]
        if asked in protocols or (asked in ("amqp091", "amqp0-9-1") and "amqp" in protocols):
            return {"status": "ok", "protocol": asked}
        return _unhealthy("No active listener", missing=[asked], protocols=sorted(protocols))


def _unhealthy(reason: str, **facts: object) -> Response:
    return Response(503, json.dumps({"status": "failed", "reason": reason, **facts}).encode())
