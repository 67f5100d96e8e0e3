"""`embodied-rm write-reward`: a language model writes reward programs, and sees how policies learned from them."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from embodied_rm.atomic_file import write_atomic
from embodied_rm.command import Command
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.experiments.compare_rules import read_cell
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.models.judges.chat import ChatModel
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.models.judges.transcript import TranscriptChat
from embodied_rm.paths import POLICY_DIR, resolve_checkpoint
from embodied_rm.programs.candidate import Candidate, FitnessReport, best_candidate
from embodied_rm.programs.designer import LanguageModelDesigner, ProgramBrief
from embodied_rm.programs.mutation import MutationDesigner
from embodied_rm.programs.program import OutputKind, Program, read_program
from embodied_rm.programs.search import Designer, ProgramChecks, search_programs
from embodied_rm.report import KeyMetric, LineChart, Report, ReportTable, write_report
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.learner.policy import load_policy
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop import refine_policy
from embodied_rm.tabletop.envs import EnvConfig
from embodied_rm.tabletop.program_env import RULE_OF_OUTPUT
from embodied_rm.tabletop.program_fitness import NUM_EPISODES, measure_terms
from embodied_rm.tabletop.program_states import record_states, task_variables
from embodied_rm.tabletop.refine_command import RefineCommand
from embodied_sim.control import CONTROL_HZ
from embodied_sim.registry import make_task
from embodied_sim.task import Task

PROGRAM_FILE, LEDGER_FILE, TRANSCRIPT_FILE = "program.txt", "candidates.json", "transcript.jsonl"
"""Files in the run folder: the best program, everything that was tried, and the conversation."""


@dataclass(frozen=True, kw_only=True)
class WriterConfig:
    """The language model; without `url` and `folder` there is none."""

    url: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    timeout_s: float = 300.0
    reasoning_tokens: int = 0
    folder: Path | None = None
    device: str = "cpu"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.url is not None and self.folder is not None:
            raise UserError("writer.url= and writer.folder= both name the language model: set one of them")
        if self.url is not None and self.model is None:
            raise UserError(f"writer.model must name the model at {self.url}")

    @property
    def is_set(self) -> bool:
        """Whether there is a language model."""
        return self.url is not None or self.folder is not None

    @property
    def name(self) -> str:
        """Name of the language model, as transcripts store it."""
        return f"{self.model or self.folder or 'transcript'}"


@dataclass(frozen=True, kw_only=True)
class WriteRewardConfig:
    """Config of `write-reward`."""

    task: str
    policy: Path
    instruction: str | None = None
    output: OutputKind = "progress"
    feedback: str = ""
    transcript: Path | None = None
    first_program: Path | None = None
    generations: int = 3
    candidates: int = 4
    temperature: float = 1.0
    iterations: int = 12
    rollout_steps: int = 60
    num_envs: int = 64
    eval_episodes: int = 64
    final_eval_episodes: int = 200
    gamma: float = 0.98
    seed: int = 0
    writer: WriterConfig = field(default_factory=WriterConfig)

    def __post_init__(self) -> None:
        check_minimum(self, 1, "generations", "candidates", "iterations", "rollout_steps", "num_envs")
        check_minimum(self, 1, "eval_episodes", "final_eval_episodes")
        check_minimum(self, 0, "temperature")
        if self.first_program is not None and (self.writer.is_set or self.transcript is not None):
            raise UserError("first_program= is changed at random: leave out writer= and transcript=, or first_program=")


def main(config: WriteRewardConfig, run: RunFolder, reporter: Reporter) -> None:
    """Search; write the best program, all candidates, the conversation and a report."""
    if not config.writer.is_set and config.first_program is None and config.transcript is None:
        raise UserError(
            "nothing writes programs: set writer.url= and writer.model=, or writer.folder=; transcript= of an earlier "
            "run; or first_program=, to change one at random"
        )
    task = make_task(config.task)
    variables = task_variables(task)
    instruction = config.instruction or describe_goal(task)
    reporter.table("write-reward", {"task": task.name, "instruction": instruction, "writer": writer_name(config)})
    checks = ProgramChecks(variables=variables, episodes=record_states(task), output=config.output, gamma=config.gamma)
    brief = ProgramBrief(
        instruction=instruction,
        variables=variables,
        time_limit_s=task.max_episode_steps / CONTROL_HZ,
        output=config.output,
        feedback=config.feedback,
    )
    designer = make_designer(config, brief, run)
    pipeline = Pipeline(run, reporter)
    history = search_programs(
        designer,
        checks,
        lambda name, program: measure_fitness(name, program, config, pipeline),
        generations=config.generations,
        candidates=config.candidates,
    )
    write_results(config, history, run, reporter)


def describe_goal(task: Task) -> str:
    """Return the first phrasing of the instruction for all episodes: with the named object, and every side."""
    fields = {"color": "named", "thing": "object", "other_color": "other", "other_thing": "object"}
    return task.templates[0].format(**fields, side=" or ".join(task.sides))


def writer_name(config: WriteRewardConfig) -> str:
    """Return who writes the programs."""
    if config.first_program is not None:
        return "random changes"
    return config.writer.name


def make_designer(config: WriteRewardConfig, brief: ProgramBrief, run: RunFolder) -> Designer:
    """Return the language model, the transcript of one, or random changes of a program."""
    if config.first_program is not None:
        return MutationDesigner(read_program(config.first_program, brief.variables).source, config.seed)
    path = config.transcript or run.file_path(TRANSCRIPT_FILE)
    chat = TranscriptChat(path, open_writer(config.writer), config.writer.name)
    return LanguageModelDesigner(chat, brief, config.temperature)


def open_writer(config: WriterConfig) -> ChatModel | None:
    """Open the language model; None if none is set."""
    if not config.is_set:
        return None
    from embodied_rm.models.judges.factory import make_chat  # by transformers, which is optional

    return make_chat(JudgeConfig(type="question", **vars(config)))


def measure_fitness(name: str, program: Program, config: WriteRewardConfig, pipeline: Pipeline) -> FitnessReport:
    """Refine the policy on a program, and return how it learned."""
    folder = f"candidates/{name}"
    path = pipeline.run.path / f"{folder}.txt"
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, program.source)
    refine = refine_command(config, path, program.output)
    metrics = pipeline.run_command("refine", folder, refine_policy.COMMAND, refine)
    cell = read_cell(pipeline.run.path / folder, refine)
    policy = load_policy(resolve_checkpoint(pipeline.run.path / folder, POLICY_DIR))
    env = replace(refine.env, num_envs=NUM_EPISODES, views=())
    terms, endings = measure_terms(config.task, policy, program, env, config.seed)
    report = FitnessReport(
        success_curve=cell.success_curve,
        final_success=next(iter(metrics["tasks"].values()))["refined_success"],
        terms=terms,
        endings=endings,
    )
    pipeline.reporter.table(f"program {name}", {"fitness": report.fitness, "success": report.final_success, **endings})
    return report


def refine_command(config: WriteRewardConfig, path: Path, output: OutputKind) -> RefineCommand:
    """Return the refinement that tries a program."""
    defaults = RefineCommand(task=config.task, policy=config.policy)
    return replace(
        defaults,
        program=path,
        iterations=config.iterations,
        rollout_steps=config.rollout_steps,
        eval_episodes=config.eval_episodes,
        final_eval_episodes=config.final_eval_episodes,
        stop_patience=1000,  # candidates are compared after equally many iterations
        seed=config.seed,
        reward=RewardConfig(rule=RULE_OF_OUTPUT[output], success_source="simulator"),
        ppo=replace(defaults.ppo, gamma=config.gamma),
        env=EnvConfig(num_envs=config.num_envs, views=()),
    )


def write_results(config: WriteRewardConfig, history: list[Candidate], run: RunFolder, reporter: Reporter) -> None:
    """Write program, candidates, metrics and report. Raises `UserError` if every program was refused."""
    run.write_json(LEDGER_FILE, {"candidates": [asdict(candidate) for candidate in history]})
    best = best_candidate(history)
    if best is None or best.report is None:
        reasons = "; ".join(history[-1].issues)
        raise UserError(f"all {len(history)} programs were refused, the last one because {reasons}")
    write_atomic(run.file_path(PROGRAM_FILE), best.source + "\n")
    tried = [candidate for candidate in history if candidate.report is not None]
    metrics: dict[str, Any] = {
        "best": best.name,
        "fitness": best.report.fitness,
        "success": best.report.final_success,
        "first_success": tried[0].report.final_success if tried[0].report else None,
        "tried": len(tried),
        "refused": len(history) - len(tried),
    }
    reporter.table("best program", metrics)
    write_report(run.file_path("report.html"), make_report(config, history, best))
    run.write_json("metrics.json", {"write_reward": metrics})
    rule = RULE_OF_OUTPUT[config.output]
    program = shlex.quote(f"program={run.path / PROGRAM_FILE}")
    reporter.log(f"use it: refine reward.rule={rule} reward.success_source=simulator {program}")


def make_report(config: WriteRewardConfig, history: Sequence[Candidate], best: Candidate) -> Report:
    """Return the page of a search: a chart per round, a table of all programs, and the best one."""
    charts = []
    for generation in sorted({candidate.name.split("_")[0] for candidate in history}, key=int):
        curves: dict[str, list[float | None]] = {
            c.name: [*c.report.success_curve]
            for c in history
            if c.report is not None and c.name.split("_")[0] == generation
        }
        title = f"round {generation}: success after each iteration"
        charts.append(LineChart(title=title, x_label="iteration", series=curves, y_max=1.0))
    rows = tuple(
        (c.name, "; ".join(c.issues) or "tried")
        if c.report is None
        else (c.name, f"success {c.report.final_success:.3f}, fitness {c.report.fitness:.3f}")
        for c in history
    )
    program_lines = tuple((f"`{line}`",) for line in best.source.splitlines() if line.strip())
    assert best.report is not None
    return Report(
        title="Reward programs",
        subtitle=f"{config.task}, written by {writer_name(config)}. Success is the simulator's.",
        key_metrics=(KeyMetric(label=f"success with program {best.name}, the best", value=best.report.final_success),),
        charts=tuple(charts),
        tables=(
            ReportTable(title=f"Program {best.name}", header=("line",), rows=program_lines),
            ReportTable(title="Programs", header=("program", "result"), rows=rows),
        ),
    )


COMMAND = Command(resumable=True, schema=WriteRewardConfig, main=main)
