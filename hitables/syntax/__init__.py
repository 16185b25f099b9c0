"""How rules are spelt: the grammars and the table of options."""
