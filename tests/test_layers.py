"""The architecture as a test: who may import whom, no cycles, and what no file may contain."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted([*ROOT.glob("embodied_rm/**/*.py"), *ROOT.glob("sim/**/*.py")])

NOUNS = {"atomic_file", "errors", "types"}
"""What every layer of embodied_rm may import: the nouns, and how a run speaks and is stored."""
ARROWS = {
    "": set(),
    "__main__": {"cli.main"},
    "errors": set(),
    "types": {"errors"},
    "atomic_file": set(),
    "run": {"atomic_file", "errors"},
    "group": {"errors", "run"},
    "cluster": {"errors"},
    "logs": {"errors", "run"},
    "checkpoint_io": NOUNS | {"run"},
    "labels": NOUNS,
    "provenance": NOUNS | {"labels"},
    "fusion": NOUNS,
    "shaping": set(),
    "rewards": NOUNS | {"labels", "shaping"},
    "losses": NOUNS,
    "window": NOUNS | {"data", "group", "labels"},
    "metrics": NOUNS,
    "models": NOUNS | {"checkpoint_io", "fusion", "group", "labels", "shaping", "serve.client"},
    "data": NOUNS | {"run"},
    "rl": NOUNS
    | {
        "models.base",
        "models.plans",
        "models.plan_memory",
        "models.witness",
        "rewards",
        "shaping",
        "metrics",
        "run",
        "checkpoint_io",
        "group",
        "logs",
    },
    "objective": NOUNS | {"labels", "losses", "models"},
    "serve": NOUNS
    | {"models.base", "models.plans", "models.plan_memory", "models.self_test", "checkpoint_io", "shaping"}
    | {"report", "cluster"},
    "report": NOUNS | {"run", "data"},
    "annotate": NOUNS | {"data", "labels", "report"},
    "audit": NOUNS
    | {"models.base", "models.fold", "models.plans", "labels", "metrics", "rewards", "shaping", "rl.envs.reward_config"}
    | {"run"},
}
VERBS = ("train", "adapt", "score", "evaluate")
BELOW_VERBS = NOUNS | {"data", "models", "labels", "fusion", "losses", "objective", "metrics", "run", "checkpoint_io"}
BELOW_VERBS |= {"provenance", "group", "cluster", "logs", "window"}
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
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def imports(name: str) -> Iterator[str]:
    """Every module of ours that a module imports, wherever in the file: dotted, as deep as it names a module."""
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else str(node.module)


def layer(name: str) -> str:
    """The part of embodied_rm that a module belongs to: `embodied_rm.data.video` is in "data"."""
    return name.split(".")[1] if "." in name else ""


def within(name: str, allowed: set[str]) -> bool:
    inner = name.removeprefix("embodied_rm").lstrip(".")
    return any(inner == part or inner.startswith(f"{part}.") for part in allowed)


@pytest.mark.parametrize("name", [name for name in MODULES if name.split(".")[0] == "embodied_rm"])
def test_embodied_rm_imports_only_along_the_arrows(name: str) -> None:
    here = layer(name)
    if here == "cli":
        return
    allowed = BELOW_VERBS | set(VERBS) if here in VERBS else ARROWS[here]
    for target in imports(name):
        top = target.split(".")[0]
        assert top != "sim", f"{name} imports {target}: only the command line knows the simulator"
        if top == "embodied_rm" and layer(target) != here:
            assert within(target, allowed), f"{name} may not import {target}"


@pytest.mark.parametrize("name", [name for name in MODULES if name.split(".")[0] == "sim"])
def test_sim_imports_nothing_of_embodied_rm(name: str) -> None:
    assert not [target for target in imports(name) if target.split(".")[0] == "embodied_rm"]


def test_only_the_simulator_knows_which_engine_runs() -> None:
    for name in MODULES:
        if not name.startswith(("embodied_sim.backends", "embodied_sim.render")):
            hidden = [
                t
                for t in imports(name)
                if t.startswith(("embodied_sim.backends.", "embodied_sim.render.")) and t.count(".") > 1
            ]
            assert set(hidden) <= {
                "embodied_sim.backends.backend",
                "embodied_sim.render.renderer",
                "embodied_sim.render.gl_context",
            }, f"{name}: {hidden}"


def test_no_module_imports_itself_in_a_circle() -> None:
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


def passes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler raises again, or hands the error to the thread that waits for the result."""
    calls = [dotted(node.func) for node in ast.walk(handler) if isinstance(node, ast.Call)]
    return any(isinstance(n, ast.Raise) for n in ast.walk(handler)) or any(c.endswith(".set_exception") for c in calls)


@pytest.mark.parametrize("name", MODULES)
def test_no_file_loads_code_hides_a_failure_or_prints(name: str) -> None:
    for node in ast.walk(MODULES[name]):
        where = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{where}: bare except"
            broad = dotted(node.type) in ("Exception", "BaseException")
            assert not broad or passes_on(node), f"{where}: swallows every error"
        elif isinstance(node, ast.Call):
            called = dotted(node.func)
            assert called not in FORBIDDEN_CALLS, f"{where}: {called}"
            assert called != "print" or layer(name) == "cli", f"{where}: print outside the command line"
            trusting = [k for k in node.keywords if k.arg == "trust_remote_code"]
            assert all(isinstance(k.value, ast.Constant) and k.value.value is False for k in trusting), where
    assert not {target.split(".")[0] for target in imports(name)} & FORBIDDEN_MODULES


@pytest.mark.parametrize("name", MODULES)
def test_public_things_say_what_they_are(name: str) -> None:
    tree = MODULES[name]
    assert ast.get_docstring(tree), f"{name} has no docstring"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name}.{node.name} has no docstring"


def test_the_walk_sees_the_project() -> None:
    assert {"embodied_rm.cli.main", "embodied_rm.rl.learner.ppo", "embodied_sim.vec_env"} <= set(MODULES)
    assert sys.version_info >= (3, 11)
