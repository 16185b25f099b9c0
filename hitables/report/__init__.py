"""Results of commands as text, tables, JSON, SARIF, JUnit XML, pictures and pages."""
