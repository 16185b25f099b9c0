"""The running kernel: scratch namespaces, loading, packets, counters."""
