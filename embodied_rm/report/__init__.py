"""`report.html`: a self-contained page with the results of a run. Video and script are inline."""

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
