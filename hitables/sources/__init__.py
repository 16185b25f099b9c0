"""From a compiled rule set back to its source: which rule each copy is of, and the sums of counters."""
