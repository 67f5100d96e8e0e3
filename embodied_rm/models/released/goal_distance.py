"""Distance to a goal in the embedding of a frozen encoder, as a potential (R3M, VIP, LIV).

Their authors use the negative distance as reward. The potential is 1 minus the distance relative to that of the first
frame, as in the curves of VIP's authors (`vip/examples/plot_reward_curves.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from embodied_rm.errors import CheckpointError
from embodied_rm.models.embedding_cache import EmbeddingCache
from embodied_rm.models.judges.chat import Answer, ContentPart, Query
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.questions import ParsedAnswer, Question, mean_head_output
from embodied_rm.models.released.torch_pickle import describe_keys, read_torch_file, select_tensors
from embodied_rm.types import Frames

CHECKPOINT_FILE = "model.pt"  # name under which these models are released


class GoalEncoder(ABC):
    """A frozen encoder of images, or of images and instructions."""

    device: str

    @abstractmethod
    def preprocess(self, frame: Frames) -> Tensor:
        """Return the pixels [3, S, S] that the encoder takes of an image uint8 [H, W, 3]."""

    @abstractmethod
    def encode_images(self, pixels: Tensor) -> Tensor:
        """Return the embeddings [N, D] of pixels [N, 3, S, S]."""

    def encode_text(self, text: str) -> Tensor:
        """Return the embedding [D] of an instruction, if the encoder has any."""
        raise AssertionError("no text encoder: the question must show a goal image")

    def distance(self, embeddings: Tensor, goal: Tensor) -> Tensor:
        """Return the distance [N] of embeddings [N, D] to that of a goal [D]."""
        return torch.linalg.vector_norm(embeddings - goal, dim=-1)


class GoalDistanceChat:
    """A `ChatModel` that answers with the head output `progress` of a first frame, the current one and a goal."""

    def __init__(self, encoder: GoalEncoder, batch_size: int) -> None:
        """`batch_size`: images per forward pass."""
        self.encoder, self.batch_size = encoder, batch_size
        # The first frame and the goal of an episode are in all its queries.
        self._images = EmbeddingCache(self._encode_images)
        self._texts: EmbeddingCache[str] = EmbeddingCache(lambda texts: [encoder.encode_text(text) for text in texts])

    @torch.inference_mode()
    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer every query, in order."""
        parts = [part for query in queries for part in query.parts]
        images = iter(self._images.get([part for part in parts if not isinstance(part, str)]))
        texts = iter(self._texts.get([part for part in parts if isinstance(part, str)]))
        return [
            self._answer(*(next(texts if isinstance(part, str) else images) for part in query.parts))
            for query in queries
        ]

    def _answer(self, first: Tensor, current: Tensor, goal: Tensor) -> Answer:
        first_distance, distance = self.encoder.distance(torch.stack([first, current]), goal).tolist()
        return Answer(head_outputs={"progress": to_potential(distance, first_distance)})

    def _encode_images(self, images: Sequence[Frames]) -> Tensor:
        pixels = torch.stack([self.encoder.preprocess(image) for image in images])
        return torch.cat([self.encoder.encode_images(b) for b in pixels.to(self.encoder.device).split(self.batch_size)])


class GoalDistanceQuestion(Question):
    """Distance of the current frame to the goal, relative to that of the first frame; the mean over the cameras.

    The goal is the goal image, or the instruction if there is none.
    """

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        first, current = (frame.by_view(context.view_names) for frame in (context.first, context.current))
        if context.goal is None:
            goals: dict[str, ContentPart] = dict.fromkeys(context.view_names, context.instruction)
        else:
            goals = {**context.goal.by_view(context.view_names)}
        return tuple(Query(parts=(first[n], current[n], goals[n])) for n in current if n in first and n in goals)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        return ParsedAnswer(mean_head_output(answers, "progress"))


class ImageGoalQuestion(GoalDistanceQuestion):
    """The same for encoders without instructions."""

    needs_goal = True


def to_potential(distance: float, first_distance: float) -> float:
    """Return the potential in [0, 1]; an episode that begins at the goal has 1 there and 0 elsewhere."""
    if first_distance == 0:
        return float(distance == 0)
    return min(max(1 - distance / first_distance, 0.0), 1.0)


def read_state_dict(folder: Path, key: str, prefix: str) -> tuple[Path, dict[str, Tensor]]:
    """Read the weights of a released file, or of a folder with one.

    Args:
        folder: The file, or its folder.
        key: Key of the state dict in the file.
        prefix: Prefix of the names of the weights that are read; it is removed.

    Returns:
        The file, and name -> weight.

    Raises:
        CheckpointError: If it cannot be read or has no such weights.
    """
    path = folder if folder.is_file() else folder / CHECKPOINT_FILE
    checkpoint = read_torch_file(path)
    stored = select_tensors(checkpoint.get(key)) if isinstance(checkpoint, dict) else {}
    weights = {name.removeprefix(prefix): tensor for name, tensor in stored.items() if name.startswith(prefix)}
    if not weights:
        raise CheckpointError(
            f"{path}: no weights {prefix}... under the key {key!r}; its keys are {describe_keys(checkpoint)}, "
            f"with weights such as {describe_keys(stored)}"
        )
    return path, weights
