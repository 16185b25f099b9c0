"""docs/evaluation.md: each figure and table of the five papers beside what was measured here.

A module of this package holds the results of one paper: functions of the recorded data, so that no number is
written twice.  `python -m benchmarks.record` fills the page.
"""
