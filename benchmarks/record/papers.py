"""The five papers, in the order of the page."""

from . import conext2014, flows, layer4, lcn2016, storm

PAPERS = (conext2014.PAPER, lcn2016.RECORD, layer4.PAPER, storm.PAPER, flows.PAPER)
