"""Tables of the docs are written between their marks, and nowhere else."""

from __future__ import annotations

from pathlib import Path

from benchmarks.doc_tables import between, fill, markdown

PAGE = "# A\n\n<!-- table: one -->\n<!-- end -->\n\ntext\n\n<!-- table: two -->\nold\n<!-- end -->\n"


def test_a_table_is_filled_between_its_marks_and_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    one = markdown(("a", "b"), [("x", 1234), ("y", 0.5)])
    assert one == "| a | b |\n| --- | --: |\n| x | 1,234 |\n| y | 0.5 |\n"
    for _ in range(2):
        fill(page, "one", one)
        assert page.read_text() == PAGE.replace("one -->\n", f"one -->\n{one}")
    fill(page, "two", "new\n")
    assert page.read_text() == PAGE.replace("one -->\n", f"one -->\n{one}").replace("old", "new")
    result = between("two").search(page.read_text())
    assert result is not None
    assert result[0] == "new\n"
