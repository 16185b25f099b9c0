"""Fill docs/evaluation.md from the recorded data."""

from .page import write
from .papers import PAPERS

if __name__ == "__main__":
    write(PAPERS)
