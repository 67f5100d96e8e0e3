"""Count the names that a reader from the field would not know, and the structure that would make one jump.

    python benchmarks/vocabulary.py            # a table; exit code 1 when a bound is missed
    python benchmarks/vocabulary.py --list     # every finding, one per line

`vocabulary.json` lists the words, what to write instead, and the places where a word is a term of a library or a paper.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = json.loads(Path(__file__).with_name("vocabulary.json").read_text())
PACKAGES = {"embodied_rm": ROOT / "embodied_rm", "embodied_sim": ROOT / "sim" / "embodied_sim"}
CODE_DIRS = (*PACKAGES.values(), ROOT / "benchmarks", ROOT / "tests", ROOT / "docs" / "examples")
COMPONENT = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
IRREGULAR_PARTICIPLES = frozenset(TABLE["irregular_participles"])

BASE_FORMS = frozenset(("embed", "exceed", "feed", "need", "proceed", "seed", "speed"))
"""Words on -ed that are no participles."""


class Finding(NamedTuple):
    """A name or text that uses a word of the table."""

    kind: str
    path: str
    line: int
    text: str
    word: str


def split_words(name: str) -> list[str]:
    """Return the words of an identifier or text, in lower case."""
    return [word.lower() for word in COMPONENT.findall(name)]


def find_words(kind: str, path: Path, line: int, text: str) -> Iterator[Finding]:
    """Yield a finding for each word of the table in a text."""
    where = path.relative_to(ROOT).as_posix()
    for word in split_words(text):
        if word in TABLE["words"] and not any(
            allowed["word"] == word and where.startswith(allowed["path"]) and re.search(allowed.get("text", ""), text)
            for allowed in TABLE["allowed"]
        ):
            yield Finding(kind, where, line, text.strip()[:80], word)


def scan_python(path: Path) -> Iterator[Finding]:
    """Yield findings among the identifiers and the messages and keys (string literals) of a Python file."""
    source = path.read_text()
    docstrings = {
        node.body[0].lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.NAME:
            yield from find_words("identifier", path, line, token.string)
        elif token.type == tokenize.STRING and line not in docstrings and not token.line.lstrip().startswith('"""'):
            yield from find_words("message or key", path, line, token.string)


def scan_yaml(path: Path) -> Iterator[Finding]:
    """Yield findings among the keys and values of a configuration file, comments left out."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        yield from find_words("configuration key", path, number, line.split("#")[0])


def find_all() -> list[Finding]:
    """Return every finding in the packages, the configurations, the benchmarks, the examples and the tests."""
    findings: list[Finding] = []
    for folder in CODE_DIRS:
        for path in sorted(folder.rglob("*.py")):
            if path.name == Path(__file__).name:
                continue
            findings += find_words("file name", path, 0, path.stem)
            findings += scan_python(path)
    for path in sorted((ROOT / "configs").rglob("*.yaml")):
        findings += find_words("file name", path, 0, path.stem)
        findings += scan_yaml(path)
    return findings


def is_participle(name: str) -> bool:
    """Return whether a function's name is a bare past participle, such as `judged` or `_told`."""
    bare = name.strip("_")
    return "_" not in bare and (bare in IRREGULAR_PARTICIPLES or (bare.endswith("ed") and bare not in BASE_FORMS))


def product_modules() -> dict[Path, ast.Module]:
    """Return the syntax tree of every module of both packages."""
    return {path: ast.parse(path.read_text()) for folder in PACKAGES.values() for path in sorted(folder.rglob("*.py"))}


def participle_functions(modules: dict[Path, ast.Module]) -> list[str]:
    """Return the functions that are named by a bare past participle, properties left out."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and is_participle(node.name)
        and not any(isinstance(d, ast.Name) and "property" in d.id for d in node.decorator_list)
    ]


def duplicate_classes(modules: dict[Path, ast.Module]) -> dict[str, list[str]]:
    """Return the names that more than one class has, with the modules."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def duplicate_basenames(modules: dict[Path, ast.Module]) -> dict[str, int]:
    """Return the file names that more than one module has, command files (one per command) counted once."""
    counts = Counter(path.stem for path in modules if path.stem not in ("__init__", "__main__"))
    return {name: count for name, count in counts.items() if count > 1}


def wide_functions(modules: dict[Path, ast.Module], limit: int = 8) -> list[str]:
    """Return the functions with more than `limit` parameters, `self` and `cls` left out."""
    found = []
    for path, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                if len([name for name in names if name not in ("self", "cls")]) > limit:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    return found


def measure() -> dict[str, tuple[float, float]]:
    """Return figure -> (measured, largest allowed)."""
    modules = product_modules()
    lines = {path: len(path.read_text().splitlines()) for path in modules if path.name != "__init__.py"}
    cli_lines = sum(len(path.read_text().splitlines()) for path in (PACKAGES["embodied_rm"] / "cli").rglob("*.py"))
    duplicates = duplicate_classes(modules)
    in_one_package = [
        name for name, paths in duplicates.items() if len({path.rsplit("/", 1)[0] for path in paths}) < len(paths)
    ]
    return {
        "names, keys and messages with a homemade word": (len(find_all()), 0),
        "functions named by a bare past participle": (len(participle_functions(modules)), 20),
        "duplicate class names in one package": (len(in_one_package), 0),
        "duplicate class names over all": (len(duplicates), 8),
        "duplicate module basenames": (len(duplicate_basenames(modules)), 10),
        "functions with more than 8 parameters": (len(wide_functions(modules)), 0),
        "longest file, lines": (max(lines.values()), 400),
        "files under 50 lines, percent": (round(100 * sum(n < 50 for n in lines.values()) / len(lines), 1), 15),
        "lines of embodied_rm/cli": (cli_lines, 3000),
        "lines of both packages": (sum(len(path.read_text().splitlines()) for path in modules), 41166),
    }


def main() -> int:
    """Print the table, or with `--list` every finding. Return 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every finding, one per line")
    if parser.parse_args().list:
        modules = product_modules()
        for finding in find_all():
            print(f"{finding.path}:{finding.line} {finding.kind} {finding.word!r}: {finding.text}")
        for line in (*participle_functions(modules), *wide_functions(modules), *duplicate_classes(modules).items()):
            print(line)
        return 0
    figures = measure()
    for name, (measured, bound) in figures.items():
        print(f"{'ok  ' if measured <= bound else 'MISS'} {name:50} {measured:>10g}  at most {bound:g}")
    return int(any(measured > bound for measured, bound in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
