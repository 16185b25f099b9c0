"""The page of `compile --report` in a browser: its numbers, its tree, and that text of rules stays text."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hitables_command import run

from hitables import read
from hitables.compiler.options import Options
from hitables.compiler.pipeline import Output, compile_text
from hitables.ir.packet import Backend
from hitables.report.page import page, page_data

NASTY = '</script><script>document.title="taken"</script><b>&amp;'
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


def rules() -> str:
    """A chain that gets a tree, with a comment that looks like the end of a script, and a short chain."""
    comment = NASTY.replace('"', '\\"')
    lines = [f'-A FORWARD -s 10.0.0.7/32 -m comment --comment "{comment}" -j DROP', "-A FORWARD -j LOG"]
    lines += [
        f"-A FORWARD -d 10.{at // 16}.{at % 16}.0/24 -p tcp -m tcp --dport {at + 1} -j ACCEPT"
        for at in range(300)
    ]
    return "\n".join(
        [
            "*filter",
            ":INPUT ACCEPT [0:0]",
            ":FORWARD DROP [0:0]",
            "-A INPUT -i lo -j ACCEPT",
            *lines,
            "COMMIT",
            "",
        ]
    )


@pytest.fixture(scope="module")
def output() -> Output:
    return compile_text(rules(), Options(backend="legacy"), name="<i>office</i>.rules")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if not driver or not chromium:
        if os.environ.get("CI"):
            pytest.fail("chromium and chromium-driver are missing")
        pytest.skip("chromium and chromium-driver are missing")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1200,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield window
    window.quit()


@pytest.fixture
def shown(browser: Any, output: Output, tmp_path: Path) -> Iterator[Any]:
    """The browser with the page loaded; at the end its log must be empty."""
    path = tmp_path / "page.html"
    path.write_text(page(output, Backend.LEGACY))
    browser.set_window_size(1200, 900)
    browser.get(path.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def texts(browser: Any, selector: str) -> list[str]:
    return [each.text for each in browser.find_elements("css selector", selector)]


def test_the_numbers_are_those_of_the_reports(shown: Any, output: Output) -> None:
    (report,) = (each for each in output.reports if not each.why)
    assert texts(shown, "h1") == ["<i>office</i>.rules"] and shown.title.startswith("<i>office</i>.rules")
    cards = dict(zip(texts(shown, ".card .what"), texts(shown, ".card .now"), strict=True))
    assert cards["rules read per packet, mean"] == f"{report.read_after:.1f}"
    assert cards["rules read, at most"] == str(report.longest)
    assert cards["rules printed"] == str(report.after) and cards["depth"] == str(report.nesting)
    assert cards["modelled time, legacy"] == f"{report.ns_after['legacy']:.0f} ns"
    assert texts(shown, "#proof") == ["✓ proved equal to its input"]
    (row,) = texts(shown, "#compiled tbody tr")
    assert row.split()[:4] == ["filter", "FORWARD", "302", str(report.after)]
    (unchanged,) = texts(shown, "#unchanged tbody tr")
    assert unchanged == "filter INPUT 1 short: fewer than 8 rules"


def test_the_bars_are_the_shares_of_the_packets(shown: Any, output: Output) -> None:
    (chain,) = page_data(output, Backend.LEGACY)["compiled"]
    for side, kind in enumerate(("was", "now")):
        assert sum(chain["reads"]["shares"][side]) == pytest.approx(1, abs=0.01)
        bars = shown.find_elements("css selector", f"rect.{kind}-fill")
        assert len(bars) == sum(share > 0 for share in chain["reads"]["shares"][side])
    assert chain["reads"]["mean"][1] < chain["reads"]["mean"][0] / 4
    titles = [each.get_attribute("textContent") for each in shown.find_elements("css selector", "rect title")]
    assert any(title.startswith("compiled: ") for title in titles)


def test_the_tree_is_opened_by_clicks_and_by_keys(shown: Any, output: Output) -> None:
    table = output.program.table("filter")
    top = shown.find_elements("css selector", "#tree > ul > li > .rule")
    assert len(top) == len(table["FORWARD"].rules)
    drawn = len(shown.find_elements("css selector", "#tree .rule"))
    button = shown.find_element("css selector", "#tree button[aria-expanded]")
    name = button.get_attribute("aria-label").removeprefix("open ")
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    below = shown.find_elements("css selector", f'#tree ul[data-chain="{name}"] > li > .rule')
    assert len(below) == len(table[name].rules)
    assert len(shown.find_elements("css selector", "#tree .rule")) == drawn + len(below)
    button.send_keys(" ")
    assert button.get_attribute("aria-expanded") == "false" and not below[0].is_displayed()


def test_text_of_rules_is_not_markup(shown: Any) -> None:
    has_comment = False
    closed = {None}
    while closed and not has_comment:  # open the tree until the comment is visible
        has_comment = any(NASTY.replace('"', '\\"') in text for text in texts(shown, "#tree .match"))
        closed = set(shown.find_elements("css selector", '#tree button[aria-expanded="false"]'))
        for button in [] if has_comment else closed:
            button.click()
    assert has_comment and "taken" not in shown.title
    assert shown.find_elements("css selector", "#tree b, h1 i") == []
    assert len(shown.find_elements("css selector", "script")) == 2


@pytest.mark.parametrize("width", (320, 560, 1200))
def test_the_page_fits_the_window(shown: Any, width: int) -> None:
    shown.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False},
    )
    shown.find_element("css selector", "#tree button[aria-expanded]").click()
    inner, needed = shown.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
    shown.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert inner == width and needed <= width


def test_a_long_list_is_drawn_in_parts(browser: Any, tmp_path: Path) -> None:
    lines = [
        f"-A FORWARD -s 10.{at >> 8}.{at & 255}.1/32 -m limit --limit 1/sec -j user" for at in range(250)
    ]
    text = "\n".join(
        ["*filter", ":FORWARD DROP [0:0]", ":user - [0:0]", *lines, *["-A user -j LOG"] * 2000, "COMMIT", ""]
    )
    path = tmp_path / "long.html"
    path.write_text(
        page(compile_text(text, Options(chains=frozenset({"FORWARD"})), prove=False), Backend.NFT)
    )
    browser.get(path.as_uri())
    assert "✗ NOT PROVED" in texts(browser, "#proof")[0]
    while not browser.find_elements("css selector", '#tree ul[data-chain="user"]'):
        for button in browser.find_elements("css selector", '#tree button[aria-expanded="false"]')[-1:]:
            button.click()
    inside = '#tree ul[data-chain="user"] > li > .rule'
    assert len(browser.find_elements("css selector", inside)) == 100
    more = browser.find_element("css selector", '#tree ul[data-chain="user"] button.more')
    assert more.text == "1,900 more rules"
    more.click()
    assert len(browser.find_elements("css selector", inside)) == 200
    assert browser.get_log("browser") == []


def test_a_rule_set_without_compiled_chains(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "none.html"
    text = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j DROP\nCOMMIT\n"
    path.write_text(page(compile_text(text, Options()), Backend.LEGACY))
    browser.get(path.as_uri())
    assert texts(browser, "#tree") == ["No chain was compiled."]
    assert browser.get_log("browser") == []


def test_the_page_loads_nothing_and_has_no_markup_from_rules(output: Output) -> None:
    text = page(output, Backend.LEGACY)
    assert text.count("</script>") == 2 and "taken" in text
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert data == page_data(output, Backend.LEGACY)
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text
    assert "default-src 'none'" in text


def test_the_command_writes_it(tmp_path: Path) -> None:
    run(
        "compile",
        "--report",
        tmp_path / "page.html",
        "--equivalence",
        "verdict",
        "-o",
        tmp_path / "out",
        text=rules(),
    )
    text = (tmp_path / "page.html").read_text()
    assert text.startswith("<!doctype html>") and "standard input" in text
    done = run("compile", "--report", tmp_path / "page.txt", text=rules(), status=2)
    assert "FILE.html" in done.stderr and "--summary" in done.stderr and done.stdout == ""


def test_packets_read_as_the_interpreter_counts(output: Output) -> None:
    (chain,) = page_data(output, Backend.LEGACY)["compiled"]
    before = read(rules())
    assert chain["before"] == len(before.table("filter")["FORWARD"].rules)
    assert chain["reads"]["most"][0] == chain["before"]
