"""Benchmarks and campaigns, each run by a target of the Makefile."""
