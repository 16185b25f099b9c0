"""Trees to programs, programs to text."""
