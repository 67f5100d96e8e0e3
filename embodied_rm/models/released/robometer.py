"""Robometer: progress and success at a token after each frame of a video; a Qwen3-VL with three small heads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
from torch import Tensor

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.chat import Answer, BatchedChat, Query
from embodied_rm.models.judges.chat_template import ChatTemplate
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.local import WEIGHT_DTYPES, load_processor
from embodied_rm.models.judges.questions import ParsedAnswer, Question, camera_videos, mean_head_output
from embodied_rm.models.judges.released_prompts import ROBOMETER_PROMPT
from embodied_rm.models.released.robometer_adapter import ADAPTER_NAME, is_adapter_only, switch_adapter
from embodied_rm.models.released.robometer_weights import HEAD_NAMES, check_readout, load_backbone, load_heads

ADDED_TOKENS = ("<|split_token|>", "<|reward_token|>", "<|pref_token|>", "<|sim_token|>", "<|prog_token|>")
"""Tokens added to the tokenizer of the base model, in the order of their embeddings."""
PROGRESS_TOKEN = "<|prog_token|>"  # follows each frame; the heads are applied at its position
NUM_FRAMES = 8  # per video; a shorter one repeats its last frame, as in training
PIXEL_LIMITS = (4_096, 16_777_216)
"""Minimum and maximum number of pixels per image: limits of the library that prepared its images, for patches of 16."""


class RobometerChat(BatchedChat):
    """A `ChatModel` that answers with the head outputs `progress` and `success` of the last frame."""

    def __init__(
        self,
        folder: Path,
        base_model: Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        attn_implementation: str = "sdpa",
        batch_size: int = 16,
    ) -> None:
        """Load the released files and the processor of the Qwen3-VL that it was trained from, in `base_model`.

        A folder with an adapter alone is one for the Robometer in `base_model`. `CheckpointError` if a file is not as
        released. See `LocalChat` for the other arguments.
        """
        self.batch_size, self._device = batch_size, device
        check_readout(folder)
        backbone_folder = base_model if is_adapter_only(folder) else folder
        self.model, self.heads = load_backbone(backbone_folder, attn_implementation), load_heads(folder)
        for module in (self.model, self.heads):
            module.to(device=device, dtype=WEIGHT_DTYPES[dtype]).eval()
        self._adapters = switch_adapter(self.model, folder)
        self.processor = _load_processor(base_model)
        self.chat_template = ChatTemplate(self.processor, base_model)
        self._progress_token_id: int = self.processor.tokenizer.convert_tokens_to_ids(PROGRESS_TOKEN)
        num_embeddings = self.model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
        if len(self.processor.tokenizer) > num_embeddings:
            raise CheckpointError(
                f"{base_model}: its tokenizer with Robometer's tokens has {len(self.processor.tokenizer)} tokens, but "
                f"the model in {folder} has {num_embeddings} embeddings: it was trained from another model"
            )

    @torch.inference_mode()
    def _answer_batch(self, queries: Sequence[Query]) -> list[Answer]:
        encoding = self.chat_template.encode(
            [[{"role": "user", "content": _message_content(query)}] for query in queries],
            {"padding": True, "padding_side": "right"},
            add_generation_prompt=False,
            add_vision_id=True,
        )
        inputs = {name: tensor.to(self._device) for name, tensor in encoding.items()}
        with self._adapters.use_adapter(ADAPTER_NAME):
            hidden_states = self.model(**inputs).last_hidden_state
        token_indices = [int(torch.nonzero(ids == self._progress_token_id)[-1]) for ids in inputs["input_ids"]]
        frame_states = hidden_states[torch.arange(len(token_indices)), torch.tensor(token_indices)]
        progress_logits, success_logits = (self.heads[name](frame_states).float() for name in HEAD_NAMES)
        progress_values = to_progress(progress_logits).tolist()
        success_probs = success_logits[:, 0].sigmoid().tolist()
        values = zip(progress_values, success_probs, strict=True)
        return [Answer(head_outputs={"progress": progress, "success": success}) for progress, success in values]


class RobometerQuestion(Question):
    """Progress and success at the last frame of the video so far; the mean of one video per camera."""

    predicts_success = True
    history_capacity = 64
    prompt: ClassVar[str] = ROBOMETER_PROMPT

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        task = self.prompt.replace("{instruction}", context.instruction)
        videos = camera_videos(context, NUM_FRAMES, num_frames=NUM_FRAMES)
        return tuple(Query(parts=(task, *video)) for video in videos)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        progress, success = (mean_head_output(answers, name) for name in ("progress", "success"))
        return ParsedAnswer(min(max(progress, 0.0), 1.0), success)


def to_progress(logits: Tensor) -> Tensor:
    """Return the progress in [0, 1], [N], of logits [N, bins]; a head with one output was trained as a regression."""
    if logits.shape[1] == 1:
        return logits[:, 0].sigmoid()
    return logits.softmax(dim=1) @ torch.linspace(0, 1, logits.shape[1], device=logits.device)


def _load_processor(base_model: Path) -> Any:
    processor = load_processor(base_model, "its processor cannot be loaded")
    vocab = processor.tokenizer.get_vocab()
    for token in ADDED_TOKENS:
        if token not in vocab:
            added = {"additional_special_tokens": [token]}
            processor.tokenizer.add_special_tokens(added, replace_extra_special_tokens=False)
    processor.image_processor.size = {"shortest_edge": PIXEL_LIMITS[0], "longest_edge": PIXEL_LIMITS[1]}
    return processor


def _message_content(query: Query) -> list[dict[str, Any]]:
    task, *frames = query.parts
    content: list[dict[str, Any]] = [{"type": "text", "text": task}]
    for frame in frames:
        content += [{"type": "image", "image": frame}, {"type": "text", "text": PROGRESS_TOKEN}]
    return content
