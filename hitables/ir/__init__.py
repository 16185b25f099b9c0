"""What is said: programs, rules, fields, packets, and what they mean."""
