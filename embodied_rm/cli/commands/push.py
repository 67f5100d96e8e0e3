"""`embodied-rm push`: upload a reward model to the Hugging Face Hub."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.api.hub_upload import push_folder, read_card
from embodied_rm.command import Command
from embodied_rm.models.load_checkpoint import load_checkpoint
from embodied_rm.paths import resolve_reward_model
from embodied_rm.run_folder import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class PushConfig:
    """Config of `push`."""

    checkpoint: Path
    repo_id: str
    revision: str | None = None
    private: bool | None = None


def main(config: PushConfig, run: RunFolder, reporter: Reporter) -> None:
    """Upload, and print what loads the model. It is loaded first, so that nobody downloads a damaged one."""
    folder = resolve_reward_model(config.checkpoint)
    input_spec = load_checkpoint(folder).input_spec
    pushed = push_folder(
        folder, read_card(folder), input_spec, config.repo_id, private=config.private, revision=config.revision
    )
    reporter.log(pushed.url)
    reporter.log(shlex.quote(f"checkpoint={pushed}"))


COMMAND = Command(schema=PushConfig, main=main, writes_run_folder=False)
