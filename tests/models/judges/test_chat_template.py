"""Chat templates are rendered as by `transformers`, and cannot take the machine's time or memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_vlm

import transformers  # isort: skip

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.judges import chat_template
from embodied_rm.models.judges.chat_template import ChatTemplate

SCRIPT = chat_template.SCRIPT
CONVERSATION = [
    {
        "role": "user",
        "content": [{"type": "image", "image": np.zeros((40, 40, 3), np.uint8)}, {"type": "text", "text": "Hi"}],
    }
]


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tiny_vlm.save_model(tmp_path_factory.mktemp("vlm"), "qwen3_vl")
    return transformers.AutoProcessor.from_pretrained(folder)


@pytest.fixture(scope="module")
def limited(processor: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatTemplate]:
    """A template whose child process has a limit of 2 seconds."""
    script = tmp_path_factory.mktemp("limited") / SCRIPT.name
    source = SCRIPT.read_text()
    script.write_text(source.replace("MAX_CPU_S, MAX_MEMORY_BYTES = 20,", "MAX_CPU_S, MAX_MEMORY_BYTES = 2,"))
    assert script.read_text() != source
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_template, "SCRIPT", script)
        yield ChatTemplate(processor, Path("judge"))


def test_prompt_and_inputs_are_those_of_transformers(processor: Any) -> None:
    template = ChatTemplate(processor, Path("judge"))
    for add_generation_prompt in (False, True):
        options = {"add_generation_prompt": add_generation_prompt}
        prompts = template.render([CONVERSATION] * 2, **options)
        assert prompts == processor.apply_chat_template([CONVERSATION] * 2, **options)
        ours = template.encode([CONVERSATION], {"padding": True}, **options)
        theirs = processor.apply_chat_template(
            [CONVERSATION],
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True},
            **options,
        )
        assert ours.keys() == theirs.keys() and all((ours[name] == theirs[name]).all() for name in theirs)


DOUBLING = "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}"
LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ 'a' * 20000000000 }}", "MemoryError"),
        (DOUBLING, "MemoryError|too much"),
        ("{{ '%0999999999d' % 1 }}", "MemoryError|too much"),
        ("{{ 'a' | center(999999999) }}", "MemoryError|too much"),
        ("{{ 'a' * 300000 }}", "a prompt of 300000 letters, not of 1 to 200000"),
        ("", "a prompt of 0 letters"),
        (LOOPS, r"too much time or memory \(SIGXCPU\)"),
        ("{{ raise_exception('no\nimage') }}", "TemplateError: no image"),
        ("{% for %}", "TemplateSyntaxError"),
        ("{{ messages[7].content }}", "UndefinedError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ " + "(" * 100_000, "cannot be rendered|too much"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
    ],
)
def test_every_failure_is_one_sentence(limited: ChatTemplate, template: str, reason: str) -> None:
    limited._template = template
    with pytest.raises(CheckpointError, match=reason) as error_info:
        limited.render([CONVERSATION], add_generation_prompt=True)
    assert str(error_info.value).startswith("judge: its chat template") and "\n" not in str(error_info.value)
    assert len(str(error_info.value)) < 400
    limited._template = "{{ messages[0].role }}"
    assert limited.render([CONVERSATION]) == ["user"], "the next prompt is rendered"


def make_template(processor: Any, template: object) -> ChatTemplate:
    copied = copy.copy(processor)
    copied.chat_template = template
    return ChatTemplate(copied, Path("judge"))


@pytest.mark.parametrize("template", ["no image", "{{ '<|image_pad|>' * 7 }}", r"{{ '\ud800' }}"])
def test_prompt_that_the_processor_does_not_take(limited: ChatTemplate, template: str) -> None:
    limited._template = template
    with pytest.raises(CheckpointError, match=r"^judge: its processor does not take the prompt"):
        limited.encode([CONVERSATION], {"padding": True})


@pytest.mark.parametrize("template", [{"other": "{{ 1 }}"}, {"default": 3}, 3])
def test_folder_without_a_template(processor: Any, template: object) -> None:
    with pytest.raises(UserError, match="judge: no chat template"):
        make_template(processor, template)


def test_child_ends_with_its_template(processor: Any) -> None:
    template = make_template(processor, {"default": "{{ messages[0].role }}"})
    assert template.render([CONVERSATION]) == ["user"]
    child = template._child
    assert child is not None
    del template
    assert child.wait(60) is not None
