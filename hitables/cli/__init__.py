"""The command `hitables`: arguments in, exit status out."""
