"""Write the cffi wrapper of the engine: build_ffi.py HEADER... -o OUT.c

cffi reads the lines of each header between those of its include guard, so a
header may hold types, enums and function declarations, but no macros.
"""

import argparse
import re
from pathlib import Path

from cffi import FFI


def declarations(header: Path) -> str:
    """The header without preprocessor lines, which cffi cannot read."""
    return re.sub(r"^#.*$", "", header.read_text(), flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("headers", nargs="+", type=Path)
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    ffi = FFI()
    for header in args.headers:
        ffi.cdef(declarations(header))
    ffi.set_source(
        "hitables.core._engine",
        "\n".join(f'#include "{header.name}"' for header in args.headers),
    )
    ffi.emit_c_code(args.output)


if __name__ == "__main__":
    main()
