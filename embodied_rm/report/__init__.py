"""`report.html`: one self-contained page that shows what a run did. No network, no library: inline video and script."""

from embodied_rm.report.contents import (
    EpisodePanel,
    KeyMetric,
    LineChart,
    Report,
    ReportCase,
    ReportTable,
    SuccessRate,
    TaskSuccess,
)
from embodied_rm.report.render import write_report

__all__ = [
    "EpisodePanel",
    "KeyMetric",
    "LineChart",
    "Report",
    "ReportCase",
    "ReportTable",
    "SuccessRate",
    "TaskSuccess",
    "write_report",
]
