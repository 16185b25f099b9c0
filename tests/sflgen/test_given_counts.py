"""Counts that a command gives its rule (-c PACKETS BYTES) are those of the kernel's rule, and of the list's."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from support.planned_updates import check, prefixes
from support.sflgen_command import both, sflgen
from support.small_namespace import Namespace

import hitables
from hitables.kernel.namespace import run
from sflgen.commands import read_commands
from sflgen.edits import apply
from sflgen.planner import merged, plan_unproved, start_unproved
from sflgen.settings import Settings, Strategy
from sflgen.state import State

COMMANDS = """\
-A plain -s 10.0.0.9 -c 1 100 -j ACCEPT
-I plain 1 -s 10.0.0.8 -c 2 200 -j DROP
-R plain 2 -s 10.0.0.7 -c 3 300 -j ACCEPT
-A plain -s 10.0.0.6 -c 0 0 -j DROP
-I INPUT 1 -s 192.0.2.1 -c 4 400 -j DROP
-I INPUT 20 -s 10.0.0.0/9 -p tcp -c 5 500 -j DROP
-A INPUT -s 192.0.2.3 -c 6 600 -j LOG --log-prefix "a b"
-I INPUT 9 -m limit --limit 5/min -c 7 700 -j LOG
"""
WANTED = {
    "10.0.0.9": 1,
    "10.0.0.8": 2,
    "10.0.0.7": 3,
    "192.0.2.1": 4,
    "10.0.0.0/9": 5,
    "192.0.2.3": 6,
    "5/min": 7,
}


def counted(printed: str) -> dict[str, int]:
    """By the first address or limit of a rule of *printed* (iptables-save -c): its packets, all copies together."""
    counts: Counter[str] = Counter()
    for packets, size, rule in re.findall(r"^\[(\d+):(\d+)\] -A \S+ (.*)", printed, re.MULTILINE):
        if packets != "0":
            assert size == f"{packets}00"
            named = re.search(r"-s (\S+)|--limit (\S+)", rule)
            assert named, rule
            counts[(named[1] or named[2]).removesuffix("/32")] += int(packets)
    return dict(counts)


def loaded_counts(backend: str, folder: str, commands: list[str], *options: str) -> list[dict[str, int]]:
    """What the kernel counts once each of *commands* is loaded by sflgen."""
    run([f"iptables-{backend}-restore"], hitables.write(prefixes(20)))
    done = sflgen("init", "--live", "--backend", backend, "--state", folder)
    assert done.exit_code == 0, done.stderr
    counts = []
    for text in commands:
        done = sflgen("apply-commands", "-", "--state", folder, *options, text=text)
        assert done.exit_code == 0, done.stderr
        if "--live" not in options:
            run([f"iptables-{backend}-restore", "--noflush"], done.stdout)
        counts.append(counted(run([f"iptables-{backend}-save", "-c"])))
    done = sflgen("fold", "--state", folder, "--live")
    assert done.exit_code == 0, done.stderr
    counts.append(counted(run([f"iptables-{backend}-save", "-c"])))
    listed = sflgen("print", "--state", folder).stdout
    assert counted(listed) == WANTED, "the list keeps what the commands said"
    return counts


def wanted_after(number: int) -> dict[str, int]:
    """The counts behind the first *number* commands; the fourth gives none."""
    return {name: count for name, count in WANTED.items() if count <= number - (number > 3)}


def counts_after_each(backend: str, folder: Path, *options: str) -> list[dict[str, int]]:
    """What the kernel counts behind each command, and last behind a fold."""
    with Namespace() as namespace:
        commands = COMMANDS.splitlines(keepends=True)
        return namespace.call(loaded_counts, backend, str(folder / "st"), commands, *options)


@pytest.mark.needs_kernel
@both
def test_a_rule_begins_with_the_count_that_its_command_gives(backend: str, tmp_path: Path) -> None:
    *one_by_one, folded = counts_after_each(backend, tmp_path, "--live")
    assert one_by_one == [wanted_after(number) for number in range(1, 9)]
    assert folded == WANTED, "the fold carries the counts on"


@pytest.mark.needs_kernel
@both
def test_a_printed_patch_sets_the_count(backend: str, tmp_path: Path) -> None:
    """The last command folds; a printed fold cannot know the counts of the kernel."""
    *one_by_one, _, _ = counts_after_each(backend, tmp_path)
    assert one_by_one == [wanted_after(number) for number in range(1, 8)]


def test_a_rule_of_a_synced_file_begins_with_the_count_in_the_file(folder: str, tmp_path: Path) -> None:
    listed = sflgen("print", "--state", folder).stdout
    more = "[5:500] -A plain -s 10.0.0.9 -j DROP\n-A plain -s 10.0.0.8 -j DROP\nCOMMIT\n"
    changed = tmp_path / "changed.rules"
    changed.write_text(listed.replace("COMMIT\n", more))
    done = sflgen("sync", str(changed), "--state", folder)
    assert done.exit_code == 0, done.stderr
    added = [line for line in done.stdout.splitlines() if line.startswith("-")]
    assert added == ["-A plain -s 10.0.0.9 -j DROP -c 5 500", "-A plain -s 10.0.0.8 -j DROP"]


@pytest.mark.needs_kernel
@both
def test_counts_of_many_commands_in_one_patch(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        at_once = namespace.call(loaded_counts, backend, str(tmp_path / "st"), [COMMANDS], "--live")
    assert at_once == [WANTED, WANTED]


@pytest.mark.parametrize("strategy", [None, Strategy.OVERLAY, Strategy.GRAFT, Strategy.FOLD])
def test_the_count_is_in_one_copy(strategy: Strategy | None) -> None:
    state = start_unproved(prefixes(200), Settings(backend="nft")).after
    plan = plan_unproved(state, read_commands(COMMANDS, state.master), strategy)
    check(plan)
    rules = re.findall(r"^-[AIR] \S+ (?:\d+ )?(.*) -c (\d+) \d+$", plan.text, re.MULTILINE)
    assert sorted(int(packets) for _, packets in rules) == [1, 2, 3, 4, 5, 6, 7]


def test_merged_plans_keep_their_counts() -> None:
    """Also of a row that a later plan deletes, and that the merged one does not load at all."""
    state: State = start_unproved(prefixes(200), Settings(backend="nft")).after
    plans = []
    for command in COMMANDS.splitlines():
        plans.append(plan_unproved(state, read_commands(command, state.master)))
        state = plans[-1].after
    plan = merged(plans)
    assert len(plan.edits) < sum(len(each.edits) for each in plans)
    assert hitables.write(apply(plan.before.loaded, plan.edits)) == hitables.write(plan.after.loaded)
    rules = re.findall(r"^-[AIR] \S+ (?:\d+ )?(.*) -c (\d+) (\d+)$", plan.text, re.MULTILINE)
    assert (
        counted("".join(f"[{packets}:{size}] -A plain {rule}\n" for rule, packets, size in rules)) == WANTED
    )


@pytest.mark.parametrize(
    "undo", ["-D plain -s 192.0.2.9 -j DROP", "-F plain", "-R plain 1 -s 192.0.2.8 -j DROP"]
)
def test_a_rule_that_a_batch_takes_back_leaves_its_count_to_no_other(undo: str) -> None:
    program = hitables.read("*filter\n:INPUT ACCEPT\n:plain -\n-A INPUT -j plain\nCOMMIT\n")
    state = start_unproved(program, Settings("nft")).after
    rule = "-A plain -s 192.0.2.9 {} -j DROP\n"
    for first, last in (("-c 5 500", ""), ("", "-c 6 600")):
        batch = f"{rule.format(first)}{undo}\n{rule.format(last)}"
        text = plan_unproved(state, read_commands(batch, state.master)).text
        inserted = [line for line in text.splitlines() if line.startswith("-A plain -s 192.0.2.9")]
        assert inserted[-1].endswith(last or "-j DROP")
        assert text.count(" -c ") == bool(last)
