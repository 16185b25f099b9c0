"""Draws figures and tables from what was measured."""
