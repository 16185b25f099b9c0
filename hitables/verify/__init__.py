"""Program against program.  Imports ir and engine alone, nothing of the compiler."""
