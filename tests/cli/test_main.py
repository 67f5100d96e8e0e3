"""The command line: help for every command, one-sentence errors with exit code 2, no stray files."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from embodied_rm.cli import compose
from embodied_rm.cli import main as cli
from embodied_rm.cli.help import with_inherited_description
from embodied_rm.command import Command
from embodied_rm.config_files import command_display_name, command_names, config_dir, read_help_page
from embodied_rm.errors import UserError
from embodied_rm.run_folder import Reporter, RunFolder


def run_cli(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import sys; from embodied_rm.cli.main import main; sys.exit(main())", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **env},
        check=False,
    )


@pytest.mark.parametrize("name", command_names())
def test_help_names_every_key_and_gives_two_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    page = read_help_page(config_dir() / f"{name}.yaml")
    assert page.summary in text
    assert len(page.examples) >= 2
    for example in page.examples:
        assert example in text
    for key in [*page.keys, *page.groups]:
        assert key.name.endswith("_schema") or key.name.split("@")[0] in text


@pytest.mark.parametrize("name", command_names())
def test_every_key_has_a_description(name: str) -> None:
    for key in map(with_inherited_description, read_help_page(config_dir() / f"{name}.yaml").keys):
        is_section = key.default == ""
        assert is_section or key.description, f"configs/{name}.yaml: {key.name} has no comment"


def test_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {command_display_name(name)} " in text for name in command_names())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip()[0].isdigit()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["taks"], "unknown command 'taks'. Did you mean 'tasks'?"),
        (["tasks", "tsk=lift_cube"], "unknown key of embodied-rm tasks 'tsk'. Did you mean 'task'?"),
        (["tasks", "+new=1"], "unknown key of embodied-rm tasks '+new'"),
        (["tasks", "~task"], "cannot read '~task': an override is written key=value"),
        (["tasks", "hydra.run.dir=x"], "unknown key of embodied-rm tasks 'hydra.run.dir'"),
        (["tasks", "task"], "cannot read 'task': an override is written key=value"),
        (["tasks", "=3"], "cannot read '=3': an override is written key=value"),
        (["tasks", "task=${oc.env:HOME}"], "interpolation is not accepted"),
        (["tasks", "task=[1]"], "task must be a text or null, got [1]"),
        (["tasks", "task=lift_cub"], "unknown task 'lift_cub'. Did you mean 'lift_cube'?"),
        (["tasks", "--verbose"], "unknown flag of embodied-rm tasks '--verbose'"),
        (["tasks", "resume=maybe"], "resume must be true or false, got 'maybe'"),
        (["--shell-completion", "install=tcsh"], "unknown shell 'tcsh'"),
        (["--shell-completion"], "--shell-completion needs install=SHELL"),
    ],
)
def test_an_error_is_one_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    assert sentence in captured.err


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A config with every kind of field."""

    task: str | None = None
    contact_sheet: Path | None = None
    steps: int = 3
    sizes: tuple[int, ...] = (1, 2)
    pair: tuple[int, int] = (8, 8)
    kind: Literal["mean", "sum"] = "mean"
    inner: Inner = Inner()


def sample_command(
    monkeypatch: pytest.MonkeyPatch,
    work_fn: Callable[[], object],
    *,
    resumable: bool = True,
    writes_first: bool = False,
) -> None:
    """Replace the command `tasks`: same YAML file, other function. `writes_first`: a file before `work_fn`."""

    def work(config: Sample, run: RunFolder, reporter: Reporter) -> None:
        if writes_first:
            run.write_json("part.json", {})
        work_fn()
        run.write_json("metrics.json", {})

    monkeypatch.setattr(cli, "load_command", lambda name: Command(schema=Sample, main=work, resumable=resumable))


def compose_sample(*words: str) -> Sample:
    runs = compose.expand_sweep(compose.parse_overrides(words, multirun=False))
    return compose.compose_typed("tasks", runs[0], Sample)


def test_a_config_is_an_instance_of_its_dataclass() -> None:
    config = compose_sample("steps=7", "inner.rate=2", "sizes=[4]", "task=x")
    assert config == Sample(steps=7, sizes=(4,), inner=Inner(rate=2.0), task="x")


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("steps=abc", "steps must be a whole number, got abc"),
        ("steps=1.5", "steps must be a whole number, got 1.5"),
        ("steps=null", "steps must be a whole number, got null"),
        ("steps=1,2", "steps must be a whole number, got 1,2; for one run each, add -m"),
        ("inner.rate=fast", "inner.rate must be a number, got fast"),
        ("inner=3", "inner must be a group of keys (rate), got 3"),
        ("pair=[1]", "pair must have 2 entries, got [1]"),
        ("kind=men", "unknown value of kind 'men'. Did you mean 'mean'? Available: mean, sum"),
        ("kind=[a]", "kind must be one of mean, sum, got [a]"),
        ("sizes=3", "sizes must be a list like [a,b] (each a whole number), got 3"),
        ("sizes=[1,x]", "sizes must be a list like [a,b] (each a whole number), got [1,x]"),
    ],
)
def test_a_wrong_type_names_key_type_and_value(word: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        compose_sample(word)
    assert sentence in str(error.value)


@pytest.mark.parametrize("text", ["lift it, don't drop it", "say [hi", 'a "quoted" word', "back\\slash,", "1 (one)"])
def test_any_sentence_is_a_valid_text(text: str) -> None:
    assert compose_sample(f"task={text}").task == text


@pytest.mark.parametrize("name", ["2024_05_02", "1.10", "1e3", "007", "true"])
def test_a_folder_may_be_named_like_another_number(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    for words in ([f"data={name}", f"out={name}"], [name, f"out={name}"]):
        overrides = compose.parse_overrides(compose.name_data_path("inspect", words), multirun=False)
        options, rest = compose.split_run_options(overrides)
        (data,) = compose.check_keys("inspect", rest)
        assert options.out == Path(name) and data.value() == name
        compose.check_values("inspect", [data])


def test_numbers_may_be_written_in_any_form() -> None:
    overrides = compose.parse_overrides(["data=x", "learning_rate=1e-3", "steps=1_000"], multirun=False)
    assert [override.value() for override in compose.check_keys("train", overrides)] == ["x", 0.001, 1000]


def test_a_missing_required_key_is_named() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Needy:
        data: Path
        task: str | None = None
        contact_sheet: Path | None = None

    with pytest.raises(UserError, match="data is required: embodied-rm tasks data="):
        compose.compose_typed("tasks", [], Needy)


def test_a_sweep_is_the_product_of_its_values() -> None:
    overrides = compose.parse_overrides(["a=1,2", "b=x,y", "c=3"], multirun=True)
    assert compose.expand_sweep(overrides) == [[f"a={a}", f"b={b}", "c=3"] for a in (1, 2) for b in ("x", "y")]


def test_multirun_numbers_its_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sample_command(monkeypatch, lambda: None)
    assert cli.main(["tasks", "-m", "task=a,b", f"out={tmp_path / 'sweep'}"]) == 0
    configs = [json.loads((tmp_path / "sweep" / n / "config.json").read_text()) for n in "01"]
    assert [c["config"]["task"] for c in configs] == ["a", "b"]


def test_a_run_folder_is_never_overwritten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []
    sample_command(monkeypatch, lambda: calls.append(1))
    out = f"out={tmp_path / 'run'}"
    assert cli.main(["tasks", out]) == 0
    before = (tmp_path / "run" / "config.json").read_bytes()
    assert cli.main(["tasks", out]) == 2
    assert "already holds a run; pass resume=true" in capsys.readouterr().err
    assert cli.main(["tasks", out, "resume=true"]) == 0
    assert "is already finished" in capsys.readouterr().out
    assert cli.main(["tasks", out, "task=other", "resume=true"]) == 2
    assert "started with other values of task" in capsys.readouterr().err
    assert (tmp_path / "run" / "config.json").read_bytes() == before
    assert len(calls) == 1


def test_an_interrupted_run_resumes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    sample_command(monkeypatch, interrupt, writes_first=True)
    assert cli.main(["tasks", f"out={tmp_path / 'run'}"]) == 130
    sample_command(monkeypatch, lambda: None)
    assert cli.main(["tasks", f"out={tmp_path / 'run'}", "resume=true"]) == 0
    assert (tmp_path / "run" / "metrics.json").exists()


def test_ctrl_c_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    for written, resumable, hint in (
        (False, True, ""),
        (True, True, "; to resume, repeat the command line with resume=true"),
        (True, False, "; it cannot be continued: with resume=true, it begins anew"),
    ):
        sample_command(monkeypatch, interrupt, resumable=resumable, writes_first=written)
        assert cli.main(["tasks", f"out={folder}"]) == 130
        assert capsys.readouterr().err == f"interrupted{hint}\n"
        assert folder.exists() == written, "a run that wrote nothing leaves nothing"
        shutil.rmtree(folder, ignore_errors=True)


def test_an_internal_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("not a mistake of the user")

    sample_command(monkeypatch, fail)
    with pytest.raises(ValueError, match="not a mistake"):
        cli.main(["tasks", f"out={tmp_path / 'run'}"])


def test_printing_commands_write_no_files(tmp_path: Path) -> None:
    result = run_cli("tasks", "-m", "task=lift_cube,open_drawer", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("instruction") == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--help"], ["tasks", "--help"], ["tasks", "tsk=1"], ["-sc", "query=bash"]])
def test_help_and_completion_import_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys; from embodied_rm.cli.main import main; main(sys.argv[1:]); "
        "print('HEAVY', sorted({'torch', 'mujoco', 'gymnasium', 'matplotlib', 'av'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "COMP_LINE": "embodied-rm tasks "},
        check=False,
    )
    assert result.stdout.splitlines()[-1] == "HEAVY []", result.stderr


def test_commands_import_no_library_that_not_every_run_uses() -> None:
    """Each of these takes a second or more; a command that needs one imports it when it does."""
    script = (
        "import sys; from embodied_rm.cli.main import load_command; "
        "from embodied_rm.config_files import command_names; "
        "[load_command(name) for name in command_names()]; "
        "print(sorted({'open_clip', 'timm', 'transformers', 'sympy', 'matplotlib', 'scipy.stats'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout.splitlines()[-1:] == ["[]"], result.stderr


COMMAND = f"{sys.executable} -m embodied_rm"


def run_in_shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of bash, whose exit code is that of the first failing part of a pipe."""
    words = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize("words", ["--help", "tasks", "score --help"])
def test_a_closed_pipe_is_no_error(words: str, tmp_path: Path) -> None:
    result = run_in_shell(f"{COMMAND} {words} | true", tmp_path)
    assert result.stderr == "" and result.returncode in (0, 141)


def test_a_run_whose_reader_has_exited_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_pipe() -> None:
        raise BrokenPipeError

    sample_command(monkeypatch, break_pipe)
    monkeypatch.setattr(cli, "discard_output", lambda: None)
    assert cli.main(["tasks", f"out={tmp_path}/run"]) == 141
    assert not (tmp_path / "run").exists() and capsys.readouterr().err == ""


@pytest.mark.parametrize("words", ["--help", "--version"])
def test_output_without_room_is_one_sentence(words: str, tmp_path: Path) -> None:
    result = run_in_shell(f"{COMMAND} {words} > /dev/full", tmp_path)
    assert (result.returncode, result.stderr) == (5, "error: there is no space left\n")


@pytest.mark.parametrize("words", ["score data={}", "inspect data={}", "inspect {}", "score data=. checkpoint={}"])
def test_a_name_that_is_too_long_is_one_sentence(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words.format("a" * 300).split()) == 5
    assert capsys.readouterr().err.strip().endswith("a: the name is too long")
