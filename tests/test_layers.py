"""Architecture tests: allowed imports between packages, no import cycles, forbidden constructs."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted([*ROOT.glob("embodied_rm/**/*.py"), *ROOT.glob("sim/embodied_sim/**/*.py")])

BASIC = {"atomic_file", "errors", "free_memory", "text_file", "threads", "types"}
"""Modules that every package of embodied_rm may import."""
APPLICATION = {"cli", "experiments", "tabletop"}
"""The packages that join the libraries to the simulator; the only ones that import embodied_sim."""
ARROWS = {
    "": {"api", "data.feature_map", "errors", "hub_checkpoint", "rewards.reward_config", "types"},
    "api": BASIC
    | {"audit", "checkpoint_io", "data", "evaluate", "models", "paths", "rewards", "rl", "run_folder", "training"}
    | {"client", "hub_checkpoint", "report"},
    "__main__": {"cli.main", "cli.tracebacks"},
    "environment": {"errors"},
    "errors": set(),
    "types": {"errors"},
    "atomic_file": set(),
    "free_memory": set(),
    "text_file": {"errors"},
    "threads": set(),
    "run_folder": {"atomic_file", "errors", "run_lock", "text_file"},
    "run_lock": {"errors", "atomic_file"},
    "stored_fields": {"errors"},
    "interrupts": set(),
    "distributed": {"environment", "errors", "run_folder"},
    "ray_cluster": {"errors"},
    "logs": {"errors", "run_folder"},
    "build_limit": {"errors"},
    "checkpoint_io": BASIC,
    "command": {"run_folder"},
    "config_files": {"errors"},
    "config_schema": {"config_files", "errors"},
    "open_run": {"errors", "run_folder"},
    "paths": {"checkpoint_io", "data.hub", "errors", "hub_checkpoint", "models.judges.judge_config"},
    "plugins": {"errors"},
    "labels": BASIC | {"data.fingerprint", "plugins"},
    "hub_download": {"errors"},
    "hub_checkpoint": {"checkpoint_io", "errors", "hub_download"},
    "data": BASIC | {"hub_download", "run_folder", "plugins"},
    "metrics": BASIC,
    "programs": BASIC | {"metrics", "rewards", "models.judges.chat"},
    "rewards": BASIC | {"client", "labels", "plugins"},
    "models": BASIC
    | {"build_limit", "checkpoint_io", "hub_download", "labels", "metrics", "plugins", "client", "stored_fields"},
    "rl": BASIC
    | {"models.reward_model", "models.subgoals", "models.subgoal_state", "models.view_agreement", "models.view_fusion"}
    | {"build_limit", "client", "rewards", "metrics", "run_folder", "checkpoint_io", "distributed", "logs"}
    | {"stored_fields"},
    "serve": BASIC
    | {"models.reward_model", "models.subgoals", "models.subgoal_state", "models.self_test"}
    | {"checkpoint_io", "client", "report", "ray_cluster"},
    "client": set(),
    "report": BASIC | {"run_folder", "data"},
    "lerobot": BASIC | {"api", "data", "models.encoders", "models.reward_model", "models.subgoals", "rewards"},
    "annotate": BASIC | {"data", "labels", "report"},
    "teleoperation": BASIC | {"annotate", "report"},
    "audit": BASIC
    | {
        "models.reward_model",
        "models.scoring",
        "models.subgoals",
        "models.view_agreement",
        "client",
        "labels",
        "metrics",
        "rewards",
        "run_folder",
    },
}
PIPELINES = ("training", "score", "evaluate")
BELOW_PIPELINES = BASIC | {"data", "models", "labels", "metrics", "run_folder", "checkpoint_io"}
BELOW_PIPELINES |= {"distributed", "interrupts", "ray_cluster", "logs"}
LIGHT = ("client", "rewards")
"""Packages that must be importable without heavy libraries."""
HEAVY = {"torch", "mujoco", "warp", "transformers", "timm", "pyarrow", "av", "hydra", "starlette", "uvicorn", "ray"}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "torch.load",
    "hydra.utils.instantiate",
    "instantiate",
    "pickle.load",
    "pickle.loads",
}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "sim" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def imports(name: str) -> Iterator[str]:
    """Yield the dotted name of every module that a module imports, anywhere in its file."""
    return imports_of(MODULES[name], name)


def imports_of(tree: ast.Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # The client is installed under two names, so its modules import one another relatively.
            assert not node.level or layer(name) == "client", f"{name}: relative import"
            parent = ".".join(filter(None, [relative_package(name, node.level), node.module]))
            for alias in node.names:
                full = f"{parent}.{alias.name}"
                yield full if full in MODULES else parent


def relative_package(name: str, level: int) -> str:
    """Return the package that the dots of a relative import name, "" for none."""
    parts = name.split(".")
    is_package = any(other.startswith(f"{name}.") for other in MODULES)
    return ".".join(parts[: len(parts) + is_package - level]) if level else ""


def layer(name: str) -> str:
    """Return the package of embodied_rm that a module belongs to: "data" for `embodied_rm.data.video`."""
    return name.split(".")[1] if "." in name else ""


def within(name: str, allowed: set[str]) -> bool:
    inner = name.removeprefix("embodied_rm").lstrip(".")
    return any(inner == part or inner.startswith(f"{part}.") for part in allowed)


@pytest.mark.parametrize("name", [name for name in MODULES if name.split(".")[0] == "embodied_rm"])
def test_embodied_rm_imports_only_along_the_arrows(name: str) -> None:
    package = layer(name)
    if package in APPLICATION:
        return
    allowed = BELOW_PIPELINES | set(PIPELINES) if package in PIPELINES else ARROWS[package]
    for target in imports(name):
        top = target.split(".")[0]
        assert top != "embodied_sim", f"{name} imports {target}: only {sorted(APPLICATION)} may import the simulator"
        if top == "embodied_rm" and layer(target) != package:
            assert within(target, allowed), f"{name} may not import {target}"


def test_tabletop_imports_no_experiment_and_only_pipelines_of_commands_import_the_command_line() -> None:
    pipelines = {"embodied_rm.experiments.demo_loop", "embodied_rm.experiments.release_checkpoint"}
    assert {name for name in MODULES if layer(name) == "experiments" and "cli" in imported_layers(name)} == pipelines
    tabletop = [name for name in MODULES if layer(name) == "tabletop"]
    assert not [name for name in tabletop if imported_layers(name) & {"cli", "experiments"}]


def test_benchmarks_run_commands_as_processes_and_import_nothing_of_the_command_line() -> None:
    for path in sorted(ROOT.glob("benchmarks/*.py")):
        names = set(imports_of(ast.parse(path.read_text(encoding="utf-8")), path.name))
        assert not [name for name in names if layer(name) == "cli" and name.startswith("embodied_rm.")], path.name


def imported_layers(name: str) -> set[str]:
    return {layer(target) for target in imports(name) if target.split(".")[0] == "embodied_rm"}


@pytest.mark.parametrize("package", LIGHT)
def test_light_packages_load_no_heavy_library(package: str) -> None:
    prefix = f"embodied_rm.{package}"
    # A module of `integrations` imports its library.
    names = [name for name in MODULES if name == prefix or name.startswith(f"{prefix}.")]
    names = [name for name in names if not name.startswith("embodied_rm.client.integrations.")]
    script = f"import sys, {', '.join(names)}; print(*{HEAVY} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.split() == []


@pytest.mark.parametrize("name", [name for name in MODULES if name.split(".")[0] == "embodied_sim"])
def test_the_simulator_imports_nothing_of_embodied_rm(name: str) -> None:
    assert not [target for target in imports(name) if target.split(".")[0] == "embodied_rm"]


def test_only_the_simulator_imports_physics_backends_and_renderers() -> None:
    for name in MODULES:
        if not name.startswith(("embodied_sim.backends", "embodied_sim.render")):
            engines = [
                t
                for t in imports(name)
                if t.startswith(("embodied_sim.backends.", "embodied_sim.render.")) and t.count(".") > 1
            ]
            assert set(engines) <= {
                "embodied_sim.backends.backend",
                "embodied_sim.render.renderer",
                "embodied_sim.render.gl_context",
                "embodied_sim.render.fingerprint",
            }, f"{name}: {engines}"


def test_there_are_no_import_cycles() -> None:
    graph = {name: {t for t in imports(name) if t in MODULES and t != name} for name in MODULES}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def forwards_error(handler: ast.ExceptHandler) -> bool:
    """Whether a handler raises again, or passes the error to a future or to the process that started this one."""
    calls = [dotted(node.func) for node in ast.walk(handler) if isinstance(node, ast.Call)]
    passes = any(call.endswith(".set_exception") or call == "pipe.send" for call in calls)
    return passes or any(isinstance(node, ast.Raise) for node in ast.walk(handler))


@pytest.mark.parametrize("name", MODULES)
def test_no_file_loads_code_hides_an_error_or_prints(name: str) -> None:
    for node in ast.walk(MODULES[name]):
        where = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{where}: bare except"
            broad = dotted(node.type) in ("Exception", "BaseException")
            assert not broad or forwards_error(node), f"{where}: swallows every error"
        elif isinstance(node, ast.Call):
            called = dotted(node.func)
            assert called not in FORBIDDEN_CALLS, f"{where}: {called}"
            assert called != "print" or layer(name) == "cli", f"{where}: print outside the command line"
            trust_flags = [k for k in node.keywords if k.arg == "trust_remote_code"]
            assert all(isinstance(k.value, ast.Constant) and k.value.value is False for k in trust_flags), where
            loads_folder = called.endswith(".from_pretrained") and layer(name) == "models"
            assert trust_flags or not loads_folder, f"{where}: without the flag, transformers offers to run code"
    assert not {target.split(".")[0] for target in imports(name)} & FORBIDDEN_MODULES


@pytest.mark.parametrize("name", MODULES)
def test_public_modules_classes_and_functions_have_docstrings(name: str) -> None:
    tree = MODULES[name]
    assert ast.get_docstring(tree), f"{name} has no docstring"
    for node in tree.body:
        is_public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        if is_public and "overload" not in map(ast.unparse, node.decorator_list):
            assert ast.get_docstring(node), f"{name}.{node.name} has no docstring"


def test_all_packages_are_found() -> None:
    assert {"embodied_rm.cli.main", "embodied_rm.rl.learner.ppo", "embodied_sim.vec_env"} <= set(MODULES)
    assert sys.version_info >= (3, 11)
