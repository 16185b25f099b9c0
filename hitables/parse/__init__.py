"""Text to ir: iptables-save text, ClassBench filters, traces."""
