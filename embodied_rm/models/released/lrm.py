"""Large Reward Models: three LoRA adapters of one Qwen3-VL, whose answers are averaged."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embodied_rm.models.judges import released_prompts as prompts
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.chat_template import ChatTemplate
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.local import LocalChat, load_processor
from embodied_rm.models.judges.questions import CameraQuestion, ParsedAnswer, interleave_images
from embodied_rm.models.released.answer_readers import read_comparison, read_completion, read_progress
from embodied_rm.models.released.lora_adapters import AdapterSwitcher, read_adapter

ADAPTER_NAMES = ("contrastive", "completion", "progress")
PROCESSOR_ADAPTER_NAME = "progress"  # adapter whose processor is used, if it has one, as in the authors' code
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


class LrmChat(LocalChat):
    """A `ChatModel` that answers with the adapter that a query names."""

    def __init__(self, folder: Path, base_model: Path, **kwargs: Any) -> None:
        """Load the base model and one adapter per folder in `folder`; `CheckpointError` if a file is invalid."""
        super().__init__(base_model, **kwargs)
        adapter_folder = folder / PROCESSOR_ADAPTER_NAME
        if any((adapter_folder / name).is_file() for name in PROCESSOR_FILES):
            self.processor = load_processor(adapter_folder, "its processor cannot be loaded")
            self.chat_template = ChatTemplate(self.processor, adapter_folder)
        self._adapters = AdapterSwitcher(
            self.model, {adapter: read_adapter(folder / adapter) for adapter in ADAPTER_NAMES}
        )

    def _answer_batch(self, queries: Sequence[Query]) -> list[Answer]:
        with self._adapters.use_adapter(queries[0].adapter):
            return super()._answer_batch(queries)


class LrmQuestion(CameraQuestion):
    """((comparison + 1) / 2 + progress + completion) / 3, of one camera; success is the answer about completion.

    The contrastive adapter gets the last scored frame, the progress adapter gets the first frame.
    """

    predicts_success = True
    uses_previous_frame = True

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        task, current = context.instruction, self.camera_image(context.current, context)
        images = [self.camera_image(context.first, context), current]
        previous, progress_prompt = self.camera_image(context.previous, context), prompts.LRM_PROGRESS_PROMPT
        if context.goal is not None:
            images.insert(0, self.camera_image(context.goal, context))
            progress_prompt = prompts.LRM_GOAL_PROGRESS_PROMPT
        comparison_parts = interleave_images(prompts.LRM_CONTRASTIVE_PROMPT, task, [previous, current])
        completion_parts = interleave_images(prompts.LRM_COMPLETION_PROMPT, task, [current], strip=True)
        progress_parts = interleave_images(progress_prompt, task, images)
        return (
            Query(parts=tuple(comparison_parts), adapter="contrastive", max_tokens=512),
            Query(parts=tuple(completion_parts), adapter="completion", max_tokens=128),
            Query(parts=tuple(progress_parts), adapter="progress", max_tokens=128),
        )

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        comparison_text, completion_text, progress_text = (answer.text or "" for answer in answers)
        comparison, success = read_comparison(comparison_text), read_completion(completion_text)
        progress = read_progress(progress_text)
        if comparison is None or success is None or progress is None:
            return None
        return ParsedAnswer(((comparison + 1) / 2 + progress + success) / 3, success)
