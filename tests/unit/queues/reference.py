"""A plain queue, message by message, as the reference of `MessageQueue` with its runs, pages and places."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Plain:
    """One message. Times are in seconds."""

    body: bytes
    position: int
    priority: int
    expires_at: float
    redelivered: bool = False
    deliveries: int = 0


@dataclass
class PlainQueue:
    """`dead`: (body, reason) of dead letters, in order."""

    ttl: float = float("inf")
    max_length: int = 1 << 60
    max_bytes: int = 1 << 60
    overflow: str = "drop-head"
    max_priority: int = 0
    delivery_limit: int = 1 << 60
    ready: list[Plain] = field(default_factory=list)
    dead: list[tuple[bytes, str]] = field(default_factory=list)
    next_position: int = 0

    def _sort(self) -> None:
        self.ready.sort(key=lambda one: (-one.priority, one.position))

    def publish(self, body: bytes, priority: int, ttl: float, now: float) -> bool:
        """Returns whether the queue took the message. Nobody consumes in the meantime."""
        fits = len(self.ready) < self.max_length and self._bytes() + len(body) <= self.max_bytes
        if self.overflow != "drop-head" and not fits:
            if self.overflow == "reject-publish-dlx":
                self.dead.append((body, "maxlen"))
            return False
        self.next_position += 1
        level = min(priority, self.max_priority)
        self.ready.append(Plain(body, self.next_position, level, now + min(ttl, self.ttl)))
        self._sort()
        self.cut(now)
        return True

    def cut(self, now: float) -> None:
        """Expires messages, then drops heads until the limits hold."""
        self.expire(now)
        while self.overflow == "drop-head" and self._over():
            self.dead.append((self.ready.pop(0).body, "maxlen"))
            self.expire(now)

    def _over(self) -> bool:
        return len(self.ready) > self.max_length or self._bytes() > self.max_bytes

    def _bytes(self) -> int:
        return sum(len(one.body) for one in self.ready)

    def expire(self, now: float) -> None:
        """Expires messages at the head of each priority only."""
        for priority in sorted({one.priority for one in self.ready}, reverse=True):
            while level := [one for one in self.ready if one.priority == priority]:
                if level[0].expires_at > now:
                    break
                self.ready.remove(level[0])
                self.dead.append((level[0].body, "expired"))

    def take(self, now: float) -> Plain | None:
        self.expire(now)
        return self.ready.pop(0) if self.ready else None

    def reject(self, one: Plain) -> None:
        self.dead.append((one.body, "rejected"))

    def requeue(self, one: Plain, failed: bool) -> None:
        one.redelivered = True
        one.deliveries += failed
        if one.deliveries > self.delivery_limit:
            self.dead.append((one.body, "delivery_limit"))
            return
        self.ready.append(one)
        self._sort()
