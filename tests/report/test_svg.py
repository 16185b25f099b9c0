"""Pictures are the same whatever was drawn before, and leave matplotlib as its user has set it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from hitables import read
from hitables.ir.fields import Family
from hitables.report import graph
from hitables.report.svg import svg

RULES = "*filter\n:INPUT ACCEPT [0:0]\n:ssh - [0:0]\n-A INPUT -p tcp -j ssh\n-A ssh -j DROP\nCOMMIT\n"


@pytest.mark.parametrize("letters", ["path", "none"])
def test_a_figure_has_one_text_whatever_the_settings_are(letters: str) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().set_title("reads")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        first = svg(figure, letters=letters)
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "other"}):
        assert svg(figure, letters=letters) == first
    assert (">reads</text>" in first) == (letters == "none")


def test_drawing_a_call_graph_changes_no_setting_and_no_backend_of_matplotlib() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "mine", "backend": "template"}):
        before = dict(matplotlib.rcParams)
        drawn = graph.draw(read(RULES, family=Family.IPV4), "svg")
        assert dict(matplotlib.rcParams) == before
    assert "ssh" in drawn and "</svg>" in drawn


@pytest.mark.parametrize("form", ["svg", "graphml"])
def test_names_that_xml_cannot_hold_are_written_with_escapes_and_stay_different(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "svg":
        pytest.importorskip("matplotlib")
        monkeypatch.setattr(graph, "svg", lambda figure, **settings: svg(figure, letters="none", **settings))
    chains = "".join(f":a{letter} -\n" for letter in ("\ufffe", "\uffff", "\udcff"))
    drawn = graph.draw(read(f"*filter\n:INPUT DROP\n{chains}COMMIT\n", family=Family.IPV4), form)
    ElementTree.fromstring(drawn)
    assert all(f"a\\{escape}" in drawn for escape in ("ufffe", "uffff", "xff"))


@pytest.mark.filterwarnings("error")
def test_letters_that_the_font_lacks_are_left_to_the_viewer() -> None:
    pytest.importorskip("matplotlib")
    assert ">\u4e2d</" in graph.draw(read(RULES.replace("ssh", "\u4e2d"), family=Family.IPV4), "svg")


def test_the_name_of_a_chain_is_no_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(graph, "svg", lambda figure, **settings: svg(figure, letters="none", **settings))
    for name in ("$x$", "$x^{$"):
        assert f">{name}</" in graph.draw(read(RULES.replace("ssh", name)), "svg")
