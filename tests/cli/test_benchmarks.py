"""The page of results: every command writes its own section, and touches no other."""

import pytest

from embodied_rm.cli.benchmarks import put_section
from embodied_rm.cli.main import main


def test_a_section_is_written_anew_in_its_place(tmp_path):
    page = tmp_path / "benchmarks.md"
    put_section(page, "bench one", "## One\n\nfirst \\1")
    put_section(page, "bench two", "## Two\n\nsecond")
    put_section(page, "bench one", "## One\n\nthird \\g<0>")
    text = page.read_text()
    assert text.startswith("# Benchmarks\n")
    assert "first" not in text and text.count("## One") == text.count("## Two") == 1
    assert text.index("third \\g<0>") < text.index("second")


def test_a_command_of_two_words_runs_and_fills_its_section(tmp_path, capsys):
    line = "bench experts tasks=[press_button] episodes=2 warp_episodes=1"
    assert main([*line.split(), f"out={tmp_path / 'run'}", f"page={tmp_path / 'page.md'}"]) == 0
    assert (tmp_path / "run/metrics.json").exists()
    text = (tmp_path / "page.md").read_text()
    assert "| press_button | panda | 1.00 | 1.00 | 1.00 |" in text and "| press_button | six_axis |" in text


@pytest.mark.parametrize("words", [["bench"], ["bench", "simm"]])
def test_a_benchmark_that_does_not_exist_is_answered_with_those_that_do(words, capsys):
    assert main(words) == 2
    assert "bench sim" in capsys.readouterr().err
