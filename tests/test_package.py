"""What is installed is the whole thing: a wheel carries code, configs and assets, and runs from any folder."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("embodied_rm", "sim", "configs", "assets", "pyproject.toml", "README.md", "LICENSE")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def run(*command: str, cwd: Path, **env: str) -> str:
    result = subprocess.run(command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
            )
        else:
            shutil.copy(source, folder / "source" / name)
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    run(*PIP, "wheel", *options, str(folder / "source"), cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing of ours but the installed wheel."""
    target = tmp_path_factory.mktemp("site")
    run(*PIP, "install", "--no-deps", "--target", str(target), str(wheel), cwd=target)
    return target


def embodied_rm(*words: str, installed: Path, cwd: Path) -> str:
    """Run the installed program; the checkout must play no part."""
    script = (
        "import sys, embodied_rm, embodied_sim; from embodied_rm.cli.main import main; "
        f"assert all(m.__file__.startswith({str(installed)!r}) for m in (embodied_rm, embodied_sim)); sys.exit(main())"
    )
    return run(sys.executable, "-c", script, *words, cwd=cwd, PYTHONPATH=str(installed))


def test_the_wheel_carries_code_configs_and_assets(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for parent, package in ((ROOT, "embodied_rm"), (ROOT / "sim", "embodied_sim")):
        for path in (parent / package).rglob("*.*"):
            built = any(part in ("__pycache__", "build") or part.endswith(".egg-info") for part in path.parts)
            if path.is_file() and not built and path.name != "pyproject.toml":
                assert str(path.relative_to(parent)) in inside, f"{path} is not in the wheel"
    for path in (ROOT / "configs").rglob("*.yaml"):
        assert f"embodied_rm/configs/{path.relative_to(ROOT / 'configs')}" in inside
    for path in (ROOT / "assets" / "robots").rglob("*.xml"):
        assert f"embodied_sim/robot_files/{path.name}" in inside
    for path in (ROOT / "assets" / "checkpoints").glob("*/*"):
        assert f"embodied_rm/checkpoints/{path.parent.name}/{path.name}" in inside


def test_the_wheel_claims_no_other_name(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"embodied_rm", "embodied_sim"}


SMALL = (
    "tasks=[lift_cube]",
    "benchmark_steps=2",
    "eval_data={num_successes:2,num_failures:2}",
    "task_presets.lift_cube={num_demonstrations:2,rollout_steps:4,iterations:2,log_std_init:-1,gamma:0.98,gae_lambda:0.85}",
    "collect.tasks=[lift_cube,open_drawer]",
    "evaluate.report_episodes=2",
    "clone={steps:10,eval_episodes:2}",
    "refine={critic_warmup_iterations:1,eval_episodes:2,final_eval_episodes:2}",
    *(f"{command}.env.num_envs=2" for command in ("collect", "clone", "refine")),
)


def printed_seconds(output: str) -> float:
    """Return the duration in the last line of a command's output, s."""
    match = re.search(r": (?:(\d+) min )?([\d.]+) s, written to", output)
    assert match is not None, output
    return 60 * int(match[1] or 0) + float(match[2])


def test_the_installed_package_does_the_whole_loop_from_another_folder(installed: Path, tmp_path: Path) -> None:
    assert "lift_cube" in embodied_rm("tasks", installed=installed, cwd=tmp_path)
    output = embodied_rm("demo", *SMALL, "out=demo", installed=installed, cwd=tmp_path)
    assert not (tmp_path / "demo" / "reward_model").exists(), "it needs to train nothing"
    metrics = json.loads((tmp_path / "demo" / "metrics.json").read_text())
    assert metrics["tasks"]["lift_cube"]["iterations"] == 2
    assert metrics["seconds"]["total"] == pytest.approx(printed_seconds(output), abs=1, rel=0.1)
    assert metrics["memory"]["peak_gib"] > 0
    assert metrics["benchmark"]["rollout_env_steps_per_s"] > 0
    assert {"voc", "mae_failures", "success_auc"} <= set(metrics["reward_model"]) and metrics["baselines"]["time"]
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
    scored = ("score", "data=demo/unseen", "episode_indices=[0]", "out=scored")
    embodied_rm(*scored, installed=installed, cwd=tmp_path)
    assert {path.name for path in (tmp_path / "scored").iterdir()} == {
        "config.json",
        "metrics.json",
        "report.html",
        "shards",
        "progress.parquet",
        "episodes",
    }
    assert {path.name for path in tmp_path.iterdir()} == {"demo", "scored"}


@pytest.mark.timeout(900)
def test_the_quickstart_of_the_readme_runs_as_it_stands(installed: Path, tmp_path: Path) -> None:
    """All of it but the demo, which tests/cli runs."""
    readme = (ROOT / "README.md").read_text()
    quickstart = readme[readme.index("## Quickstart") : readme.index("## How it works")]
    blocks = re.findall(r"```(bash|python)\n(.*?)```", quickstart, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["bash", "python", "bash"] and blocks[2][1].strip() == "embodied-rm demo"
    program, *words = shlex.split(blocks[0][1])
    assert program == "embodied-rm"
    embodied_rm(*words, installed=installed, cwd=tmp_path)
    printed = run(sys.executable, "-c", blocks[1][1], cwd=tmp_path, PYTHONPATH=str(installed))
    assert "nan" not in printed and (tmp_path / "runs" / "my_model" / "manifest.json").is_file()
