"""Chat templates of model folders: programs in Jinja, which are run in a child process.

The sandbox of `transformers` keeps them from the machine, but not from endless loops and texts of any length. The
child has limits of time and memory; every failure is a `CheckpointError` that names the folder.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.load_pretrained import checkpoint_errors

SCRIPT = Path(__file__).with_name("render_chat_template.py")
PROMPT_KEY, PROMPT_TEMPLATE = "prompt", "{{ messages[0].prompt }}"
"""Key of the first message of a conversation with its prompt, and the template that returns the prompt."""
MAX_REASON_LENGTH = 200  # letters of the child's error that a message quotes

Conversation = Sequence[dict[str, Any]]  # messages of `transformers`


class ChatTemplate:
    """The chat template of a processor. Thread-safe."""

    def __init__(self, processor: Any, folder: Path) -> None:
        """`folder`: for error messages. `UserError` without a template."""
        self._processor, self._folder = processor, folder
        self._template = select_template(processor, folder)
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None

    def render(self, conversations: Sequence[Conversation], **options: Any) -> list[str]:
        """Return the prompt of each conversation; `options` are variables of the template."""
        variables = {**self._processor.tokenizer.special_tokens_map, **options}
        request = {"chat_template": self._template, "conversations": conversations, **variables}
        with self._lock:
            reply = self._send(json.dumps(request, default=lambda value: f"<{type(value).__name__}>"))
        if "error" in reply:
            reason = " ".join(reply["error"][:MAX_REASON_LENGTH].split())
            raise CheckpointError(f"{self._folder}: its chat template cannot be rendered ({reason})")
        prompts: list[str] = reply["prompts"]
        return prompts

    def encode(
        self, conversations: Sequence[Conversation], processor_kwargs: dict[str, Any], **options: Any
    ) -> dict[str, Any]:
        """Return the model inputs of conversations; `processor_kwargs` are those of the processor's call."""
        prompts = self.render(conversations, **options)
        rendered = [
            [{**first, PROMPT_KEY: prompt}, *others]
            for prompt, (first, *others) in zip(prompts, conversations, strict=True)
        ]
        with checkpoint_errors(f"{self._folder}: its processor does not take the prompt of its chat template"):
            encoding: dict[str, Any] = self._processor.apply_chat_template(
                rendered,
                chat_template=PROMPT_TEMPLATE,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
                processor_kwargs=processor_kwargs,
            )
        return encoding

    def _send(self, request: str) -> dict[str, Any]:
        """Send a request to the child, which is started if there is none, and return its reply."""
        if self._child is None:
            self._child = _start_child()
            weakref.finalize(self, _end_child, self._child)
        child, reply = self._child, ""
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(f"{request}\n")
            child.stdin.flush()
            reply = child.stdout.readline()
        except BrokenPipeError:
            pass  # the child has ended, as after an empty reply
        finally:
            if not reply:  # also after an interrupt: the reply to it would be taken for that to the next request
                self._child = None
                exit_code = _end_child(child)
        if not reply:
            ending = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
            raise CheckpointError(f"{self._folder}: its chat template takes too much time or memory ({ending})")
        parsed: dict[str, Any] = json.loads(reply)
        return parsed


def select_template(processor: Any, folder: Path) -> str:
    """Return the chat template of a processor, in which a video is expanded as in training; `UserError` without one.

    Qwen3-VL's templates put vision tokens around a video. Its processor puts them around each frame, and replaced those
    of the template until version 5.10 of transformers; later ones keep both.
    """
    template = getattr(processor, "chat_template", None) or processor.tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if not isinstance(template, str):
        raise UserError(f"{folder}: no chat template, so its prompt format is unknown")
    if not (hasattr(processor, "vision_start_token") and hasattr(processor, "replace_video_token")):
        return template
    video, start, end = processor.video_token, processor.vision_start_token, processor.vision_end_token
    return template.replace(f"{start}{video}{end}", video)


def _start_child() -> subprocess.Popen[str]:
    # -P: the folder of the script is not searched for modules. One thread of OpenBLAS reserves little address space.
    return subprocess.Popen(
        [sys.executable, "-P", str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )


def _end_child(child: subprocess.Popen[str]) -> int:
    """End a child, unless it has ended, and return its exit code."""
    child.kill()
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    return child.wait()
