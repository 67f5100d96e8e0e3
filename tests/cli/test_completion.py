"""Tab completion of command lines."""

import subprocess
import sys

import pytest

from embodied_rm.cli.main import main
from embodied_rm.config_files import command_display_name, command_names


def suggestions(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("COMP_LINE", line)
    assert main(["--shell-completion", "query=bash"]) == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("embodied-rm tas", ["tasks"]),
        ("embodied-rm benc", ["bench"]),
        ("embodied-rm bench s", ["score", "sim"]),
        ("embodied-rm bench sim ta", ["task="]),
        ("embodied-rm tasks t", ["task="]),
        ("embodied-rm tasks task=lift_cube ou", ["out="]),
        ("embodied-rm tasks --m", ["--multirun"]),
        ("embodied-rm nonsense t", []),
        ("embodied-rm refine task=lift_", ["task=lift_cube"]),
        ("embodied-rm refine reward.rule=sh", ["reward.rule=shaped"]),
        ("embodied-rm refine reward.rule=redis", ["reward.rule=redistributed"]),
        ("embodied-rm train fusion=inv", ["fusion=inverse_variance"]),
        ("embodied-rm train label_schemes=[hops,st", ["label_schemes=[hops,stages"]),
        ("embodied-rm compare tasks=[lift_cube,lift", []),
        ("/some/where/embodied-rm tas", ["tasks"]),
    ],
)
def test_matching_words_are_suggested(
    line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suggestions(line, monkeypatch, capsys) == expected


def test_the_first_word_is_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert suggestions("embodied-rm ", monkeypatch, capsys) == list(
        dict.fromkeys(command_display_name(name).split()[0] for name in command_names())
    )


@pytest.mark.parametrize("name", command_names())
def test_every_command_suggests_out(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "out=" in suggestions(f"embodied-rm {command_display_name(name)} ", monkeypatch, capsys)


def test_bash_completes_with_the_installed_script() -> None:
    program = f"{sys.prefix}/bin/embodied-rm"
    script = f"""
        PATH={sys.prefix}/bin:$PATH
        eval "$(embodied-rm --shell-completion install=bash)"
        COMP_LINE="embodied-rm tasks t" COMP_POINT=19 COMP_CWORD=2
        hydra_bash_completion
        echo "${{COMPREPLY[@]}}"
    """
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["task="], (program, result.stderr)
