"""The C engine: tree builders, classifiers, the interpreter of programs."""
