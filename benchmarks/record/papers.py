"""The five papers, in the order of the page."""

from . import flows, lcn2016, storm

PAPERS = (lcn2016.PAPER_RECORD, storm.PAPER, flows.PAPER)
