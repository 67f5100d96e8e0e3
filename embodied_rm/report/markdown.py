"""Markdown tables of result pages and model cards."""

from collections.abc import Iterable, Mapping, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    first_line, *row_lines = (f"| {' | '.join(cells)} |" for cells in (header, *rows))
    return [first_line, "|---" * len(header) + "|", *row_lines]


def format_metrics(metrics: Mapping[str, float], names: Iterable[str]) -> list[str]:
    """Return the cells of these metrics with three decimals; "-" for a missing one."""
    return [f"{metrics[name]:.3f}" if name in metrics else "-" for name in names]
