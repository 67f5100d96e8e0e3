"""`report.html`: one self-contained page that shows what a run did. No network, no library: inline video and script."""

from embodied_rm.report.contents import Check, Curve, Figure, Panel, Rate, Report, SuccessRow, Table
from embodied_rm.report.page import write_report

__all__ = ["Check", "Curve", "Figure", "Panel", "Rate", "Report", "SuccessRow", "Table", "write_report"]
