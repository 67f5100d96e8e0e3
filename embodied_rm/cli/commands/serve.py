"""`embodied-rm serve`: serve a reward model over HTTP and gRPC."""

import sys
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.command import Command, to_base_config
from embodied_rm.errors import UserError
from embodied_rm.experiments.load import load_model_or_judge
from embodied_rm.interrupts import wait_until_interrupted
from embodied_rm.models.checkpoint import model_digest
from embodied_rm.models.judges.endpoint import read_api_key
from embodied_rm.models.judges.judge_config import JudgeConfig, judge_digest
from embodied_rm.models.judges.shuffled import OFFLINE_ONLY_MESSAGE
from embodied_rm.models.reward_model import VideoRewardModel
from embodied_rm.models.self_test import matches_expected, read_expected, run_self_test
from embodied_rm.models.subgoal_state import SubgoalState
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.paths import model_label, resolve_reward_model
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.serve.model_handle import SELF_TEST_FAILED_MESSAGE, ModelMetadata, load_in_thread
from embodied_rm.serve.service_config import ServeConfig
from embodied_rm.serve.thread_affinity import unpin_current_thread


@dataclass(frozen=True, kw_only=True)
class ServeCommand(ServeConfig):
    """Config of `serve`."""

    checkpoint: Path | None = None
    model_name: str = "reward"
    judge: JudgeConfig = field(default_factory=JudgeConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if find_spec("uvicorn") is None:
            raise UserError("serve needs a few packages more: pip install 'embodied-rm[serve]'")


def main(config: ServeCommand, run: RunFolder, reporter: Reporter) -> None:
    """Serve until SIGTERM or Ctrl-C; on a Ray cluster, deploy and return."""
    api_key = read_api_key(config.api_key_env)
    config.require_api_key(api_key)
    if config.ray.min_replicas is not None:
        deploy_replicas(config, api_key, reporter)
        return
    from embodied_rm.serve.server import serve  # an optional dependency, checked by `ServeCommand`
    from embodied_rm.serve.service_metrics import add_log_stream

    handle = load_in_thread(partial(load_and_test, config))
    unpin_current_thread()
    reporter.table("serve", startup_table(config, handle.metadata, api_key))
    if not handle.metadata.passed_self_test:
        reporter.log(f"NOT READY: {SELF_TEST_FAILED_MESSAGE}; it answers no request")
    add_log_stream(sys.stderr)
    service_config = to_base_config(config, ServeConfig)
    serve(handle, service_config, api_key, lambda url, _: reporter.log(f"serving at {url}; Ctrl-C ends"))


def deploy_replicas(config: ServeCommand, api_key: str | None, reporter: Reporter) -> None:
    """Deploy replicas on Ray Serve, unless the self-test fails: a cluster would restart them forever."""
    from embodied_rm.serve.ray_deployment import deploy  # an optional dependency, checked by `ServeCommand`

    info = load_and_test(config)[1]
    if not info.passed_self_test:
        raise UserError(SELF_TEST_FAILED_MESSAGE)
    replica_range = f"{config.ray.min_replicas} to {config.ray.resolved_max_replicas}, by Ray Serve"
    reporter.table("serve", startup_table(config, info, api_key) | {"replicas": replica_range})
    with deploy(partial(load_and_test, config), to_base_config(config, ServeConfig), api_key) as url:
        if config.ray.address is not None:
            reporter.log(f"serving at {url} from now on; embodied-rm serve again rolls over, `serve shutdown` ends it")
            return
        reporter.log(f"serving at {url}; Ctrl-C ends")
        wait_until_interrupted()


def load_and_test(config: ServeCommand) -> tuple[SubgoalRewardModel, ModelMetadata, SubgoalState]:
    """Load the model and run its self-test; return the model, its metadata and an initial state."""
    judge, _ = load_model_or_judge(config.checkpoint, config.judge)
    if isinstance(judge, VideoRewardModel):
        raise UserError(OFFLINE_ONLY_MESSAGE)
    model = SubgoalRewardModel(judge)
    outputs, state = run_self_test(model, judge.input_spec)
    assert isinstance(state, SubgoalState)
    folder = None if config.judge.type is not None else resolve_reward_model(config.checkpoint)
    expected = None if folder is None else read_expected(read_manifest(folder))
    info = ModelMetadata(
        name=config.model_name,
        version=judge_digest(config.judge) if folder is None else model_digest(folder),
        views=judge.input_spec.views,
        image_size=judge.input_spec.image_size,
        predicts_success=model.capabilities.predicts_success,
        success_threshold=model.capabilities.success_threshold,
        supports_restore=model.capabilities.serializable_state,
        passed_self_test=matches_expected(outputs, expected),
    )
    return model, info, state


def startup_table(config: ServeCommand, info: ModelMetadata, api_key: str | None) -> dict[str, object]:
    """Return the table that is printed at startup."""
    return {
        "model": model_label(config.checkpoint, config.judge),
        "version": info.version[:12],
        "views": info.views or "any",
        "batch size": f"at most {config.max_batch_size} environments",
        "key": "none: for this machine alone" if api_key is None else f"the value of {config.api_key_env}",
    }


COMMAND = Command(schema=ServeCommand, main=main, writes_run_folder=False)
