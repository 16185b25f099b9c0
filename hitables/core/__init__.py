"""The C engine: its sources (c/, include/), its build, and the only modules that call it."""
