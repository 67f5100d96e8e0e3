"""TOPReward (arXiv 2602.19313): the log-probability that a video completes its task, of any Qwen3-VL.

It has no weights of its own. A statement about the video ends with "True", whose last token is read.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.local import LocalChat, chat_messages, video_kwargs
from embodied_rm.models.judges.questions import CameraQuestion, ParsedAnswer, scale_logprob
from embodied_rm.models.judges.released_prompts import TOPREWARD_PROMPT, TOPREWARD_STATEMENT
from embodied_rm.models.load_pretrained import checkpoint_errors

MAX_FRAMES = 16  # maximum number of frames per video
FPS = 2.0  # rate at which the frames are shown, whatever their own
ANSWER = "True"
MODEL_TYPES = ("qwen3_vl", "qwen3_vl_moe")


class TopRewardChat(LocalChat):
    """A `ChatModel` that answers with the log-probability of the last token of a query."""

    def __init__(self, folder: Path, **kwargs: Any) -> None:
        """Load a Qwen3-VL; `CheckpointError` if the folder does not hold one. See `LocalChat`."""
        super().__init__(folder, **kwargs)
        if (model_type := self.model.config.model_type) not in MODEL_TYPES:
            raise CheckpointError(f"{folder}: TOPReward needs a Qwen3-VL, this is a {model_type!r}")

    @torch.inference_mode()
    def _answer_batch(self, queries: Sequence[Query]) -> list[Answer]:
        inputs = self.encode(queries)
        logprobs = self.model(**inputs, logits_to_keep=2).logits[:, 0].float().log_softmax(dim=-1)
        answer_logprobs = logprobs.gather(1, inputs["input_ids"][:, -1:])[:, 0].tolist()
        return [Answer(logprobs={ANSWER: logprob}) for logprob in answer_logprobs]

    def encode(self, queries: Sequence[Query]) -> dict[str, Tensor]:
        """Return the model inputs, padded on the left. The last part of a query follows the user's unfinished turn."""
        prompts = self.render_prompts(queries)
        with checkpoint_errors(f"{self.folder}: its processor does not take the prompt of its chat template"):
            encoding = self.processor(
                text=prompts,
                videos=[part for query in queries for part in query.parts if not isinstance(part, str)],
                padding=True,
                padding_side="left",
                return_tensors="pt",
                **video_kwargs(queries),
            )
        return {name: tensor.to(self.model.device) for name, tensor in encoding.items()}

    def render_prompts(self, queries: Sequence[Query]) -> list[str]:
        """Return the text of each query."""
        turns = [chat_messages(Query(parts=query.parts[:-1])) for query in queries]
        texts = self.chat_template.render(turns, add_generation_prompt=False)
        end = self.processor.tokenizer.eos_token
        return [f"{text.split(end)[0]}{query.parts[-1]}" for text, query in zip(texts, queries, strict=True)]


class TopRewardQuestion(CameraQuestion):
    """log P("True") of the video so far, of one camera, scaled by fixed bounds."""

    history_capacity = 64

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        history_frames = context.history.sample_evenly(context.current, MAX_FRAMES)
        frames = [self.camera_image(frame, context) for frame in history_frames]
        video = np.stack(frames * 2 if len(frames) == 1 else frames)  # a video has at least two frames
        statement = TOPREWARD_STATEMENT.replace("{instruction}", context.instruction)
        return (Query(parts=(video, TOPREWARD_PROMPT, statement), fps=FPS),)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        assert answers[0].logprobs is not None
        return ParsedAnswer(scale_logprob(answers[0].logprobs[ANSWER]))
