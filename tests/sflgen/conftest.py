"""Fixtures of several test files of sflgen."""

from support.sflgen_command import folder  # noqa: F401
