"""Figures and tables, drawn only from recorded measurements."""
