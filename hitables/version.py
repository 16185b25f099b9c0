"""The version of hitables, as compiled rule sets, reports and `hitables.__version__` name it."""

__version__ = "0.1.0"
