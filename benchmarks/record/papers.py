"""The five papers, in the order of the page."""

from . import flows, storm

PAPERS = (storm.PAPER, flows.PAPER)
