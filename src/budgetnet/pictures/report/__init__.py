"""The report: one self-contained HTML page from one or several run folders."""

from __future__ import annotations

from budgetnet.pictures.report.page import report, write_report

__all__ = ["report", "write_report"]
