"""Measures, each a command of the project."""
