"""A reward model that a service elsewhere runs, behind the contract of those that run here."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.models.base import Memory, Reference, Rows, Sight
from embodied_rm.serve.client import tracks
from embodied_rm.serve.client.errors import OutOfStepError
from embodied_rm.serve.client.judgement import Judgement
from embodied_rm.serve.client.tracks import Kept, Track
from embodied_rm.types import Array, Progress, Views

if TYPE_CHECKING:
    from embodied_rm.serve.client.reward_client import RewardClient  # by httpx, which is optional


class Lease:
    """An episode at the service, which ends it there when nobody remembers it here."""

    __slots__ = ("__weakref__", "env")

    def __init__(self, env: int, over: SimpleQueue[int]) -> None:
        self.env = env
        weakref.finalize(self, over.put, env).atexit = False


class Place(NamedTuple):
    """Where an episode is at the service."""

    track: Track
    lease: Lease


@dataclass(frozen=True, kw_only=True)
class ServedMemory:
    """The `Memory` of `ServedModel`: where the service keeps the episodes, and what it remembers, if it tells."""

    model: ServedModel
    places: npt.NDArray[np.object_]
    """[N]: a `Place` each."""
    phi: Array
    """The carried potential, float32 [N]."""

    def __len__(self) -> int:
        return len(self.phi)

    def take(self, rows: Rows) -> ServedMemory:
        """A copy of the given rows, in that order."""
        return type(self)(model=self.model, places=self.places[rows], phi=self.phi[rows])

    def put(self, rows: Rows, other: Memory) -> ServedMemory:
        """This memory with `rows` replaced by the rows of `other`."""
        assert isinstance(other, ServedMemory)
        places, phi = self.places.copy(), self.phi.copy()
        places[rows], phi[rows] = other.places, other.phi
        return type(self)(model=self.model, places=places, phi=phi)

    def potential(self) -> Array:
        """float32 [N]: the carried potential."""
        return self.phi.copy()


class StorableMemory(ServedMemory):
    """One that a file can hold, because the service tells what it remembers."""

    def state(self) -> dict[str, Tensor]:
        """What the service remembered, and which of that is each episode's."""
        of = [place.track for place in self.places]
        kept = list({id(track.kept): track.kept for track in of if track.kept is not None}.values())
        number = {id(one): i for i, one in enumerate(kept)}
        columns = [(track.step, number[id(track.kept)], track.row) for track in of]
        return {
            "columns": torch.tensor(columns, dtype=torch.int64),
            "rows": torch.tensor([one.rows for one in kept], dtype=torch.int64),
            "phi": torch.from_numpy(self.phi.copy()),
            **{f"kept{i}": torch.frombuffer(bytearray(one.state), dtype=torch.uint8) for i, one in enumerate(kept)},
        }

    def restored(self, state: dict[str, Tensor]) -> StorableMemory:
        """The memory whose `state` that is: the service is told when it is next asked."""
        kept = [Kept(state[f"kept{i}"].numpy().tobytes(), rows) for i, rows in enumerate(state["rows"].tolist())]
        places = [self.model.place(Kept(*kept[which]), row, step) for step, which, row in state["columns"].tolist()]
        return StorableMemory(model=self.model, places=column(places), phi=state["phi"].numpy().copy())


class ServedModel:
    """A `RewardModel` whose judgements are those of a service.

    Where the service tells what it remembers, that is kept here as well: a service that was restarted goes on, and
    memories stay what they were, whatever was judged from them since. Raises `ServiceError`, and its kinds.
    """

    def __init__(self, client: RewardClient) -> None:
        self._client = client
        about = client.about()["parameters"]
        views, size = about["views"], about["image_size"]
        self.sight = Sight(
            views=None if views is None else tuple(views), image_size=None if size is None else (size[0], size[1])
        )
        self.tells_success: bool = about["tells_success"]
        self._keeps: bool = about["storable"]
        self._fresh = count()
        self._over: SimpleQueue[int] = SimpleQueue()

    def begin(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Reference | None = None,
    ) -> ServedMemory:
        """Open N episodes at their first frames. Raises `UserError` for goals and references, which a service has no
        place for."""
        if goal is not None or reference is not None:
            raise UserError("a served reward model is shown neither goal pictures nor demonstrations")
        if len(instructions) != len(views):
            raise UserError(f"begin needs an instruction an environment, got {len(views)} and {len(instructions)}")
        self._end()
        leases = [Lease(next(self._fresh), self._over) for _ in instructions]
        env = [lease.env for lease in leases]
        judged, now = tracks.begin(self._client, env, [0] * len(env), instructions, frames_of(views), keep=self._keeps)
        return self._memory(now, leases, judged)

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, ServedMemory]:
        """Judge one new frame set a row."""
        assert isinstance(memory, ServedMemory)
        before, leases = ([getattr(place, name) for place in memory.places] for name in ("track", "lease"))
        try:
            judged, now = tracks.advance(self._client, before, frames_of(views))
        except OutOfStepError:
            if not self._keeps:
                raise
            # From some of these memories the service has gone on before: they are taken up as other episodes.
            leases = [Lease(next(self._fresh), self._over) for _ in before]
            before = [track._replace(env=lease.env) for track, lease in zip(before, leases, strict=True)]
            judged, now = tracks.advance(self._client, before, frames_of(views))
        return progress_of(judged), self._memory(now, leases, judged)

    def place(self, kept: Kept, row: int, step: int) -> Place:
        """An episode that the service was at, once."""
        lease = Lease(next(self._fresh), self._over)
        return Place(Track(lease.env, 0, step, kept, row), lease)

    def _memory(self, now: Sequence[Track], leases: Sequence[Lease], judged: Judgement) -> ServedMemory:
        kind = StorableMemory if self._keeps else ServedMemory
        places = [Place(track, lease) for track, lease in zip(now, leases, strict=True)]
        return kind(model=self, places=column(places), phi=np.array(judged.value, np.float32))

    def _end(self) -> None:
        """Have those episodes forgotten that nobody remembers here."""
        over = [self._over.get() for _ in range(self._over.qsize())]
        if over:
            self._client.end(over, [0] * len(over))


def column(places: Sequence[Place]) -> npt.NDArray[np.object_]:
    """The places as an array [N], each as it is."""
    whole = np.empty(len(places), object)
    for row, place in enumerate(places):
        whole[row] = place
    return whole


def frames_of(views: Views) -> dict[str, npt.NDArray[np.uint8]]:
    """View -> uint8 [N, H, W, 3]. Raises `UserError` where one is missing in some rows: a request has all of each."""
    if views.present is not None and not views.present.all():
        raise UserError("a served reward model is shown the same views of every environment, and one is missing")
    return {name: np.asarray(views.frames[:, i]) for i, name in enumerate(views.names)}


def progress_of(judged: Judgement) -> Progress:
    """A judgement as models here give it."""
    columns = judged._asdict()
    del columns["state"]
    return Progress(**{name: np.array(column) for name, column in columns.items()})
