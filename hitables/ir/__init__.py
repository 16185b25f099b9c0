"""The values of the compiler: programs, rules, packets, header fields, and the meaning of programs."""
