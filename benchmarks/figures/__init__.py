"""Figures and tables, drawn from recorded measurements alone."""
