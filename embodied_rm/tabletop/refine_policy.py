"""`embodied-rm refine`: a cloned policy learns from a learned reward, and the simulator evaluates it."""

from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from gymnasium.vector import VectorEnv

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.command import Command, to_base_config
from embodied_rm.data.record import RecordEpisodes
from embodied_rm.data.renderers import report_other_renderer
from embodied_rm.distributed import DistContext, init_distributed
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import weights_digest
from embodied_rm.models.judges.judge_config import judge_digest
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.paths import POLICY_DIR, resolve_checkpoint, resolve_imitation_data, resolve_reward_model
from embodied_rm.programs.program import Program
from embodied_rm.report import Report, write_report
from embodied_rm.rl.envs.curriculum import StartPool
from embodied_rm.rl.envs.takeover import Helper
from embodied_rm.rl.learner.demo_pairs import DemoPairs, load_demo_pairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, load_policy
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.rl.refine import RefineResult, refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.refine_options import EvaluateFn, RefineOptions
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score import Scorer
from embodied_rm.score.async_labeling import AsyncLabeler
from embodied_rm.tabletop.envs import learner_device, make_envs, make_evaluator, make_verifier, wrap_observations
from embodied_rm.tabletop.expert_helper import ExpertHelper
from embodied_rm.tabletop.exported_starts import read_starts, write_starts
from embodied_rm.tabletop.person_policy import open_person_helper
from embodied_rm.tabletop.program_env import ProgramEnv, load_program
from embodied_rm.tabletop.recorded_transitions import read_transitions
from embodied_rm.tabletop.refine_command import RefineCommand, load_policy_encoder, load_reward_model
from embodied_rm.tabletop.refine_report import learning_curves, refinement_metrics, success_row
from embodied_rm.tabletop.reward_teacher import open_teacher
from embodied_sim.registry import make_task
from embodied_sim.render.fingerprint import renderer_fingerprint
from embodied_sim.vec_env import TabletopVecEnv

LABELS_DIR = "labels"  # folder in the run folder: recorded videos and the scores of the labeler


def main(config: RefineCommand, run: RunFolder, reporter: Reporter) -> None:
    """Refine and evaluate a policy; write policy, metrics and report into the run folder."""
    task = make_task(config.task).name
    inputs = load_inputs(config, reporter)
    check_renderer(config, reporter)
    with init_distributed(config.env.device) as dist, open_labeler(config, run, dist) as labeler:
        refined = refine_task(config, inputs, run, reporter, dist, labeler)
        if labeler is not None:
            labeler.finish(reporter)
    if dist.rank:
        return
    metrics = refinement_metrics(refined)
    if refined.start_pool is not None:
        write_starts(run, refined.start_pool, task, config.env)
    if labeler is not None:
        metrics |= {"videos_labeled": len(labeler), "videos_dropped": labeler.num_dropped}
    reporter.table(f"refined {task}", metrics)
    report = Report(
        title=f"Refinement of {task}",
        subtitle=f"{config.algorithm.upper()} with reward.rule={config.reward.rule}; training success is by the "
        f"{config.reward.success_source}, that of evaluations by the simulator.",
        success_rates=(success_row(task, metrics),),
        charts=learning_curves(task, refined.log_rows),
    )
    write_report(run.file_path("report.html"), report)
    run.write_json("metrics.json", {"tasks": {task: metrics}})


@dataclass(frozen=True, kw_only=True)
class RefineInputs:
    """The models and data of a refinement."""

    policy: GaussianPolicy  # the policy, which is refined in place
    model: DescribedRewardModel
    encoder_model: ProgressNet | None  # the model whose embeddings the policy observes; None for a policy of the state
    demonstrations: DemoPairs | None  # the pairs that the policy was cloned from, if `imitation_coef` is set
    recorded: OfflineTransitions | None  # the transitions of `recorded_data`
    program: Program | None  # the reward program
    starts: StartPool | None  # the start states of another refinement


def load_inputs(config: RefineCommand, reporter: Reporter) -> RefineInputs:
    """Load policy, reward model, demonstrations and recorded transitions, on the device of the environments."""
    policy = load_policy(resolve_checkpoint(config.policy, POLICY_DIR))
    check_policy_encoder(policy.spec, resolve_reward_model(config.checkpoint), config)
    demonstrations = load_demo_pairs(resolve_imitation_data(config.policy)) if config.imitation_coef else None
    device = learner_device(config.env)
    model = load_reward_model(config)
    if isinstance(model, ProgressNet):  # other models compute where they were opened
        model = model.to(device)
    encoder_model = None if policy.spec.obs_mode == "state" else load_policy_encoder(config, model).to(device)
    recorded = None
    if config.recorded_data is not None:
        name = make_task(config.task).name
        recorded = read_transitions(config.recorded_data, name, config.reward, model, config.ppo.gamma, reporter)
    return RefineInputs(
        policy=policy.to(device),
        model=model,
        encoder_model=encoder_model,
        demonstrations=demonstrations,
        recorded=recorded,
        program=None if config.program is None else load_program(config.program, config.task, config.reward.rule),
        starts=None if config.starts is None else read_starts(config.starts, make_task(config.task).name),
    )


def check_renderer(config: RefineCommand, reporter: Reporter) -> None:
    """Log if the environments are drawn otherwise than the training data of the checkpoint that rewards."""
    if config.reward.uses_simulator_only or config.judge.type is not None or config.demonstration is not None:
        return
    facts = read_manifest(resolve_reward_model(config.checkpoint))["facts"]
    env = config.env
    report_other_renderer(facts, [renderer_fingerprint(env.renderer, env.backend, env.device)], reporter)


def open_labeler(
    config: RefineCommand, run: RunFolder, dist: DistContext
) -> AbstractContextManager[AsyncLabeler | None]:
    """Open the labeler of the videos of rank 0; a context manager of None without one, or if it is the teacher's."""
    if config.labeler.type is None or config.teach.every or dist.rank:
        return nullcontext()
    from embodied_rm.models.judges.factory import open_judge  # by transformers, which is optional

    scorer = Scorer(model=open_judge(config.labeler))
    return AsyncLabeler(scorer, run.path / LABELS_DIR, config.labeling, judge_digest(config.labeler))


def check_policy_encoder(spec: PolicySpec, model: Path, config: RefineCommand) -> None:
    """Raise `UserError` unless a policy of embeddings gets the encoder and views that it was cloned with."""
    if spec.obs_mode == "state":
        return
    if spec.encoder_sha256 != weights_digest(model):
        raise UserError(
            f"the policy in {config.policy} was cloned with another reward model than {model}: name that one, "
            "checkpoint=..."
        )
    if spec.views != config.env.views:
        raise UserError(
            f"the policy in {config.policy} was cloned from the views {', '.join(spec.views)}, not "
            f"{', '.join(config.env.views)}: set env.views=[{','.join(spec.views)}]"
        )


def refine_task(
    config: RefineCommand,
    inputs: RefineInputs,
    run: RunFolder,
    reporter: Reporter,
    dist: DistContext,
    labeler: AsyncLabeler | None = None,
) -> RefineResult:
    """Refine the policy in place, in this process's share of the environments.

    Rank 0 evaluates the policy, before and after on the same episodes. The labeler receives videos of some
    environments.
    """
    task, env_config, refine_config = config.task, config.env, to_base_config(config, RefineConfig)
    obs_mode, encoder_model = inputs.policy.spec.obs_mode, inputs.encoder_model
    local_env_config = replace(env_config, num_envs=dist.local_count(env_config.num_envs))
    if env_config.divergence_dump_dir is not None and dist.rank:
        dump_dir = env_config.divergence_dump_dir / f"process_{dist.rank}"
        local_env_config = replace(local_env_config, divergence_dump_dir=dump_dir)

    def make_episode_evaluator(count: int) -> EvaluateFn:
        return make_evaluator(
            task, env_config, episodes=count, seed=config.seed, obs_mode=obs_mode, encoder_model=encoder_model
        )

    is_first = dist.rank == 0
    final_evaluate = make_episode_evaluator(config.final_eval_episodes) if is_first else None
    evaluate_iteration = make_episode_evaluator(config.eval_episodes) if is_first and config.eval_episodes else None
    verify = None
    if evaluate_iteration is not None and config.reward.success_source == "model":
        verify = make_verifier(task, env_config, refine_config, obs_mode=obs_mode, encoder_model=encoder_model)
    envs: VectorEnv = (simulator := make_envs(task, local_env_config, ends_on_success=False))
    if inputs.program is not None:
        envs = ProgramEnv(envs, inputs.program)
    if labeler is not None:
        labeling = config.labeling
        envs = RecordEpisodes(envs, labeler.submit, num_recorded=labeling.num_envs, frame_stride=labeling.frame_stride)
    teacher = None
    if config.teach.every:
        teacher = open_teacher(config, inputs.model, run, reporter)
        envs = teacher.record(envs)
    with (
        closing(wrap_observations(envs, obs_mode, encoder_model)) as observed,
        open_helper(config, simulator, reporter) as helper,
    ):
        options = RefineOptions(
            teacher=teacher,
            evaluate_iteration=evaluate_iteration,
            crosscheck=verify,
            demonstrations=inputs.demonstrations,
            recorded=inputs.recorded,
            starts=inputs.starts,
            helper=helper,
            dist=dist,
        )
        return refine(observed, inputs.policy, inputs.model, refine_config, run, reporter, final_evaluate, options)


def open_helper(
    config: RefineCommand, envs: TabletopVecEnv, reporter: Reporter
) -> AbstractContextManager[Helper | None]:
    """Return who takes over in environments; a context manager of None if nobody does."""
    if not config.takeover.stall_steps:
        return nullcontext()
    if config.takeover.helper == "person":
        return open_person_helper(envs, config.takeover.port, reporter)
    return nullcontext(ExpertHelper(envs))


COMMAND = Command(resumable=True, schema=RefineCommand, main=main, distributed=True)
