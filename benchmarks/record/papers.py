"""The five papers, in the order of the page."""

from . import conext2014, flows, lcn2016, storm

PAPERS = (conext2014.PAPER, lcn2016.RECORD, storm.PAPER, flows.PAPER)
