"""Rule sets and traces in the manner of ClassBench (Taylor and Turner), from the statistics of a seed."""
