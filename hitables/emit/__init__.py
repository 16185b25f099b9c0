"""Trees written as chains, programs written as text."""
