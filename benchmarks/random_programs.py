"""Parse and interpret random texts: none may crash, escape, or take long.

    python benchmarks/random_programs.py --count 1000000

Every text is refused with a `ProgramError`, or computes float64 arrays. The interpreter runs under an audit hook. It
escapes if it opens a file (but for the empty one that Python's parser reads), imports, starts a process or connects.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import numpy as np
from tqdm import tqdm

from embodied_rm.programs.check_types import ProgramError
from embodied_rm.programs.interpreter import evaluate
from embodied_rm.programs.program import parse_program
from embodied_rm.programs.variables import Variable

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
    texts = import_module("random_texts")
    rng, values = random.Random(arguments.seed), texts.draw_values(NUM_ENVS)
    counts: Counter[str] = Counter()
    escapes: list[str] = []
    is_running = False

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if is_running and event.startswith(ESCAPES) and arguments[0] != os.devnull:
            escapes.append(f"{event} {arguments}"[:200])

    sys.addaudithook(watch)
    run_one("reward = opening + 1e9 * 9 ** 9", texts.VARIABLES, values)  # imports of the first call
    memory_before, longest_s, longest = peak_memory_mib(), 0.0, ""
    for _ in tqdm(range(arguments.count), mininterval=5):
        source = texts.random_source(rng, texts.VARIABLES)
        is_running, start_s = True, time.perf_counter()
        outcome = run_one(source, texts.VARIABLES, values)
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


def run_one(source: str, variables: Mapping[str, Variable], values: Mapping[str, np.ndarray]) -> str:
    """Return what became of a text: refused, computed, wrong type, or crashed."""
    try:
        program = parse_program(source, variables)
        terms = evaluate(program, values)
    except ProgramError:
        return "refused"
    except Exception as error:  # anything else is what this looks for
        write(f"{error!r}:\n{source}")
        return "crashed"
    is_right = all(value.dtype == np.float64 and len(value) == NUM_ENVS for value in terms.values())
    return "computed" if is_right else "wrong type"


def peak_memory_mib() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
