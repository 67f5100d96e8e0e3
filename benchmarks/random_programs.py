"""Parse and interpret random texts: none may crash, escape, or take long.

    python benchmarks/random_programs.py --count 1000000

Every text is refused with a `ProgramError`, or computes float64 arrays. The interpreter runs under an audit hook: a
file that is opened (but for the empty one that Python's parser reads), an import, a process or a connection is one.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
from tqdm import tqdm

from embodied_rm.programs.check_types import ProgramError
from embodied_rm.programs.interpreter import evaluate
from embodied_rm.programs.program import parse_program
from embodied_rm.programs.variables import NUMBER, POINT, Variable, with_start_values

VARIABLES = with_start_values(
    {
        "tool_pos": Variable(size=POINT, unit="m", meaning="tool"),
        "cube_pos": Variable(size=POINT, unit="m", meaning="cube"),
        "opening": Variable(size=NUMBER, unit="m", meaning="fingers"),
    }
)
NUM_ENVS = 64
ESCAPES = ("open", "import", "exec", "subprocess.", "socket.", "os.", "shutil.")
"""Prefixes of audit events that programs must not cause; `compile` is that of the parser."""


def main() -> None:
    """Run the texts and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "programs"))
    random_source = import_module("random_texts").random_source
    rng, values = random.Random(arguments.seed), draw_values()
    counts: Counter[str] = Counter()
    escapes: list[str] = []
    is_running = False

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if is_running and event.startswith(ESCAPES) and arguments[0] != os.devnull:
            escapes.append(f"{event} {arguments}"[:200])

    sys.addaudithook(watch)
    run_one("reward = opening + 1e9 * 9 ** 9", values)  # imports of the first call
    memory_before, longest_s, longest = peak_memory_mib(), 0.0, ""
    for _ in tqdm(range(arguments.count), mininterval=5):
        source = random_source(rng, VARIABLES)
        is_running, start_s = True, time.perf_counter()
        outcome = run_one(source, values)
        is_running, seconds = False, time.perf_counter() - start_s
        counts[outcome] += 1
        if seconds > longest_s:
            longest_s, longest = seconds, source
    write(f"texts {arguments.count}, {', '.join(f'{name} {count}' for name, count in sorted(counts.items()))}")
    write(f"escapes {len(escapes)}, longest {1000 * longest_s:.1f} ms with {NUM_ENVS} environments")
    write(f"additional memory {peak_memory_mib() - memory_before:.0f} MiB")
    if escapes or counts["crashed"] or counts["wrong type"]:
        raise SystemExit(f"escapes: {escapes[:5]}; longest text:\n{longest}")


def write(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def run_one(source: str, values: dict[str, np.ndarray]) -> str:
    """Return what became of a text: refused, computed, wrong type, or crashed."""
    try:
        program = parse_program(source, VARIABLES)
        terms = evaluate(program, values)
    except ProgramError:
        return "refused"
    except Exception as error:  # anything else is what this looks for
        write(f"{error!r}:\n{source}")
        return "crashed"
    is_right = all(value.dtype == np.float64 and len(value) == NUM_ENVS for value in terms.values())
    return "computed" if is_right else "wrong type"


def draw_values() -> dict[str, np.ndarray]:
    """Return random values of the variables."""
    rng = np.random.default_rng(0)
    return {name: rng.random((NUM_ENVS, 3) if v.size else NUM_ENVS) for name, v in VARIABLES.items()}


def peak_memory_mib() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
