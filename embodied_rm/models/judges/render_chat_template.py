"""The child process of `chat_template`: renders one template per line of the input, in limited time and memory.

A request is a JSON object with the arguments of `render_jinja_template`, and a reply one with "prompts" or "error".
"""

import json
import resource
import sys
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

MAX_CPU_S, MAX_MEMORY_BYTES = 20, 2**30  # per request, and of the process
MAX_PROMPT_LENGTH = 200_000  # letters of a prompt: a longer one would take the memory of the model


def render(request: dict[str, Any]) -> list[str]:
    """Return the prompt of each conversation; `ValueError` if the template fails, or a prompt is empty or too long."""
    try:
        rendered: Any = render_jinja_template(**request)  # the library's annotation is not what it returns
    except Exception as error:  # a template can raise any
        raise ValueError(f"{type(error).__name__}: {error}") from None
    prompts: list[str] = rendered[0]
    for length in map(len, prompts):
        if not 0 < length <= MAX_PROMPT_LENGTH:
            raise ValueError(f"a prompt of {length} letters, not of 1 to {MAX_PROMPT_LENGTH}")
    return prompts


def limit(kind: int, amount: int) -> None:
    """Lower the soft limit of a resource; the hard limit may be lower."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (amount if hard == resource.RLIM_INFINITY else min(amount, hard), hard))


def main() -> None:
    """Reply to the requests until the input ends."""
    limit(resource.RLIMIT_AS, MAX_MEMORY_BYTES)
    limit(resource.RLIMIT_CORE, 0)
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + MAX_CPU_S)  # the system ends a longer process
        try:
            reply: dict[str, Any] = {"prompts": render(json.loads(line))}
        except ValueError as error:
            reply = {"error": str(error)}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
