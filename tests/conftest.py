"""Settings for all tests: torch threads wait without spinning, one thread per worker, no deadline of hypothesis.

The environment variables are read when torch is imported.
"""

import faulthandler
import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("GOMP_SPINCOUNT", "2000")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # its handlers of fork wait for its threads
# On Intel CPUs, the AVX-512 kernels of MKL round differently from process to process: scores differ in the last bit.
# Elsewhere MKL may answer the setting with its slowest kernels.
CPU_INFO = Path("/proc/cpuinfo")
if CPU_INFO.exists() and {"GenuineIntel", "avx512f"} <= set(CPU_INFO.read_text().split()):
    os.environ.setdefault("MKL_CBWR", "AVX2")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
MAX_CLEAN_UP_S = 200
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_finish() -> None:
    """Leave the modules of all tests out of garbage collection: a collection of them takes half a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Limit the clean-up of a failed test: pytest ends its time limits at the failure."""
    if isinstance(node, pytest.Item):
        faulthandler.dump_traceback_later(MAX_CLEAN_UP_S, exit=True, file=2)


@pytest.fixture(scope="session", autouse=True)
def sb3_log_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let Stable-Baselines3 write its logs where pytest cleans up; it leaves a folder per learner in /tmp otherwise."""
    os.environ["SB3_LOGDIR"] = str(tmp_path_factory.getbasetemp() / "sb3")


@pytest.fixture
def restore_task_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo registrations of tasks after the test; the built-in ones are registered before it."""
    from embodied_sim import registry

    registry.task_names()
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
