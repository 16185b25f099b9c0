"""The experiment that tests the table of reads and writes against the kernel."""
