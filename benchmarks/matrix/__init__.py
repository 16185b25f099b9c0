"""The experiment that holds the table of reads and writes against the kernel."""
