"""Rules to trees: the face of the C builders."""
