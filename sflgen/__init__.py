"""Updates of compiled rule sets as small patches (docs/sflgen.md says what it will do)."""
