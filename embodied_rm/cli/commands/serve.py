"""`embodied-rm serve`: a reward model for environments elsewhere, over HTTP and gRPC."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.cli.command import Command, narrow
from embodied_rm.cli.cores import float_again
from embodied_rm.cli.places import reward_model_in, spoken_model
from embodied_rm.cli.trial import opened
from embodied_rm.errors import UserError
from embodied_rm.models.base import Retrospective
from embodied_rm.models.checkpoint import judging_digest
from embodied_rm.models.judges.config import JudgeConfig, identity
from embodied_rm.models.judges.endpoint import key_in
from embodied_rm.models.judges.shuffled import OFFLINE
from embodied_rm.models.plan_memory import PlanMemory
from embodied_rm.models.plans import Plans
from embodied_rm.models.self_test import examined, expected_of, passed
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.serve.config import ServeConfig
from embodied_rm.serve.served import UNSOUND, About, serve_in_thread


@dataclass(frozen=True, kw_only=True)
class ServeCommand(ServeConfig):
    """What is served."""

    checkpoint: Path | None = None
    name: str = "reward"
    judge: JudgeConfig = field(default_factory=JudgeConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if find_spec("uvicorn") is None:
            raise UserError("serve needs a few packages more: pip install 'embodied-rm[serve]'")


def start(config: ServeCommand, run: RunFolder, reporter: Reporter) -> None:
    """Serve until SIGTERM or Ctrl-C; on a cluster, have it served and go."""
    key = key_in(config.key_variable)
    config.refuse_open_door(key)
    if config.ray.replicas is not None:
        start_replicas(config, key, reporter)
        return
    from embodied_rm.serve.meter import log_to
    from embodied_rm.serve.server import serve  # needs an extra, as `ServeCommand` says

    served = serve_in_thread(partial(opened_and_tested, config))
    float_again()
    reporter.table("serve", table(config, served.about, key))
    if not served.about.sound:
        reporter.note(f"NOT READY: {UNSOUND}; it answers no request")
    log_to(sys.stderr)
    serve(served, narrow(config, ServeConfig), key, lambda url, _: reporter.note(f"serving at {url}; Ctrl-C ends"))


def start_replicas(config: ServeCommand, key: str | None, reporter: Reporter) -> None:
    """The same with replicas that Ray Serve looks after. Raises `UserError` for a model that is not sound: a cluster
    would start its replicas again and again."""
    from embodied_rm.serve.on_ray import deployed  # needs an extra, as `ServeCommand` says

    said = opened_and_tested(config)[1]
    if not said.sound:
        raise UserError(UNSOUND)
    many = f"{config.ray.replicas} to {config.ray.ceiling}, by Ray Serve"
    reporter.table("serve", table(config, said, key) | {"replicas": many})
    with deployed(partial(opened_and_tested, config), narrow(config, ServeConfig), key) as url:
        if config.ray.address is not None:
            reporter.note(f"serving at {url} from now on; embodied-rm serve again rolls over, `serve shutdown` ends it")
            return
        reporter.note(f"serving at {url}; Ctrl-C ends")
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
        with suppress(KeyboardInterrupt):
            while True:
                signal.pause()


def opened_and_tested(config: ServeCommand) -> tuple[Plans, About, PlanMemory]:
    """The model, what is said of it, and how it remembers."""
    judge, _ = opened(config.checkpoint, config.judge)
    if isinstance(judge, Retrospective):
        raise UserError(OFFLINE)
    model = Plans(judge)
    said, memory = examined(model, judge.sight)
    assert isinstance(memory, PlanMemory)
    folder = None if config.judge.layout is not None else reward_model_in(config.checkpoint)
    expected = None if folder is None else expected_of(read_manifest(folder))
    about = About(
        name=config.name,
        version=identity(config.judge) if folder is None else judging_digest(folder),
        views=judge.sight.views,
        image_size=judge.sight.image_size,
        tells_success=model.tells_success,
        storable=memory.storable,
        sound=passed(said, expected),
    )
    return model, about, memory


def table(config: ServeCommand, about: About, key: str | None) -> dict[str, object]:
    """What is shown before it starts."""
    return {
        "model": spoken_model(config.checkpoint, config.judge),
        "version": about.version[:12],
        "views": about.views or "any",
        "judged side by side": f"at most {config.batch} environments",
        "key": "none: for this machine alone" if key is None else f"that in {config.key_variable}",
    }


COMMAND = Command(schema=ServeCommand, start=start, keeps_run=False)
