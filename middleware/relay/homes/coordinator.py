"""`LinkCoordinator`: calls to the coordinator about homes, over this host's link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.relay.coordinator_link import CoordinatorLink, called

from .ports import HomeAt, StateWrite, StoredHome


class LinkCoordinator:
    """Implements `ports.Coordinator`."""

    def __init__(self, link: CoordinatorLink) -> None:
        self._link = link

    @property
    def answers(self) -> bool:
        return self._link.attached

    @property
    def directory_is_old(self) -> bool:
        return self._link.directory_is_old

    def when_old(self, call: Callable[[], None]) -> None:
        self._link.on_old_directory = call

    async def ask(self, name: HomeName) -> HomeAt:
        client = self._link.client
        call = client.group_home if name.kind is HomeKind.GROUP else client.transaction_home
        home = await called(call(self._link.session, name.id))
        return HomeAt(home.host_id, home.epoch)

    async def put(self, writes: Sequence[StateWrite]) -> Mapping[int, TreecastError]:
        messages = [_message(write) for write in writes]
        return await called(self._link.client.put_home_state(self._link.session, messages))

    async def get(self, name: HomeName, epoch: int) -> StoredHome:
        home = pb.HomeEntry(kind=pb.HomeKind.Name(name.kind), id=name.id, epoch=epoch)
        return StoredHome.of(await called(self._link.client.get_home_state(self._link.session, home)))

    async def producer_ids(self, count: int) -> range:
        return await called(self._link.client.producer_ids(self._link.session, count))


def _message(write: StateWrite) -> pb.HomeWrite:
    items = [pb.HomeItem(key=key, value=value) for key, value in write.stored().items()]
    return pb.HomeWrite(
        kind=pb.HomeKind.Name(write.name.kind),
        id=write.name.id,
        epoch=write.epoch,
        items=items,
        forget=write.forget,
    )
