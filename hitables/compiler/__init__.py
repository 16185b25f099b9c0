"""The compiler: options, tables, and the pipeline from text to proved text."""
