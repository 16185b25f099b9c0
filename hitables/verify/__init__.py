"""Proofs that two programs are equal.  Imports nothing of the compiler and nothing of the simulator."""
