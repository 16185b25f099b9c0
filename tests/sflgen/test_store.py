"""The state directory: it is read as it was written, and is consistent after any interruption."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import make_updates
from support.disk_order import recorded
from support.planned_updates import favoured, keys, prefixes
from support.rule_texts import make_text
from support.scale import examples
from support.sflgen_command import SFLGEN
from support.small_namespace import Namespace

import hitables
from hitables.errors import HitablesError, LiveError
from hitables.verify.question import Equal
from sflgen.commands import read_commands
from sflgen.planner import fold_unproved, plan_unproved, start_unproved
from sflgen.proof import verify
from sflgen.settings import Settings
from sflgen.state import State
from sflgen.store import Damaged, Store


def same(one: State, other: State) -> bool:
    return (keys(one.master), keys(one.loaded)) == (keys(other.master), keys(other.loaded)) and (
        one.layouts,
        one.settings,
        one.version,
    ) == (other.layouts, other.settings, other.version)


def ban(state: State, number: int) -> str:
    return f"-I INPUT {1 + number % len(state.master.table('filter')['INPUT'].rules)} -s 192.0.2.{number} -j DROP"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state directory with three commits in its journal."""
    with Store.create(
        tmp_path / "st", start_unproved(prefixes(20), Settings(foreign=("DOCKER *", "f2b-*"))).after
    ) as store:
        for number in range(3):
            store.commit(
                plan_unproved(store.state, read_commands(ban(store.state, number * 9), store.state.master))
            )
    return tmp_path / "st"


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 32))
def test_a_committed_state_is_read_again(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("state") / "st"
    rng = random.Random(seed)
    plan = start_unproved(
        hitables.read(make_text(rng, rules=60, memory=0.15)), Settings(min_length=3, delta=4)
    )
    store = Store.create(folder, plan.before)
    store.commit(plan)
    for _ in range(5):
        _, updates, _ = make_updates(rng, store.state.master, 2, favoured(store.state))
        try:
            store.commit(plan_unproved(store.state, updates))
        except HitablesError:
            continue
        if rng.random() < 0.2:
            store.compact()
        state = store.state
        store.close()
        store = Store.open(folder)
        assert same(store.state, state)
        assert store.unsettled is None
    assert isinstance(verify(store.state), Equal)
    store.close()


def test_a_jump_from_output_to_a_rule_that_only_input_may_reach_is_refused(tmp_path: Path) -> None:
    text = (
        "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:known - [0:0]\n-A INPUT -j known\n"
        "-A known -m mac --mac-source 00:11:22:33:44:55 -j ACCEPT\nCOMMIT\n"
    )
    state = start_unproved(hitables.read(text), Settings()).after
    with pytest.raises(HitablesError, match=r"mac.*is not allowed in a chain that OUTPUT reaches"):
        plan_unproved(state, read_commands("-I OUTPUT -j known\n", state.master))


def test_a_second_writer_is_refused_and_a_reader_is_not(folder: Path) -> None:
    with Store.open(folder):
        with pytest.raises(HitablesError, match=f"in use by process {os.getpid()}"):
            Store.open(folder)
        Store.open(folder, to_write=False).close()
    Store.open(folder).close()


def test_a_journal_cut_off_anywhere_gives_the_state_of_a_commit(folder: Path) -> None:
    (journal,) = folder.glob("journal.*")
    data = journal.read_bytes()
    states = []
    for end in range(0, len(data) + 1, 7):
        journal.write_bytes(data[:end])
        with Store.open(folder) as store:
            states.append(store.state.version)
            assert store.unsettled is None or store.state.version == store.unsettled.version + 1
    assert sorted(set(states)) == [1, 2, 3, 4] and states == sorted(states)


def test_a_comment_may_have_what_ends_a_line_elsewhere(folder: Path) -> None:
    """U+2028, U+2029 and U+0085 end a line for str.splitlines; then the next start called the journal damaged."""
    for comment in ("a\u2028b", "a\u2029b", "a\x85b"):
        with Store.open(folder) as store:
            command = f'-A INPUT -s 192.0.2.7 -m comment --comment "{comment}" -j DROP'
            store.commit(plan_unproved(store.state, read_commands(command, store.state.master)))
    with Store.open(folder) as store:
        assert store.state.version == 7 and hitables.write(store.state.master).count('b" -j DROP') == 3
        store.compact()
    with Store.open(folder) as store:
        assert store.state.version == 7 and 'b" -j DROP' in hitables.write(store.state.loaded)


def test_a_commit_of_which_a_page_was_lost_had_not_returned(folder: Path) -> None:
    (journal,) = folder.glob("journal.*")
    whole = journal.read_bytes()
    start = whole.rindex(b"begin ")
    for at in (start, start + 20, len(whole) - 40):
        journal.write_bytes(whole[:at] + b"\0" * 16 + whole[at + 16 :])
        with Store.open(folder) as store:
            assert store.state.version == 3
    journal.write_bytes(whole.replace(b"DROP", b"DR0P"))  # no lost page
    with pytest.raises(Damaged):
        Store.open(folder)


def test_a_reader_beside_a_writer_reads_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generation that the reader has chosen is removed before it reads the journal."""
    replay, writer = Store._replay, Store.open(folder)

    def late(self: Store, to_write: bool) -> None:
        if writer.generation == self.generation and not to_write and writer.generation < 3:
            writer.compact()
        replay(self, to_write)

    monkeypatch.setattr(Store, "_replay", late)
    assert Store.open(folder, to_write=False).state.version == writer.state.version == 4
    writer.close()


def test_a_closed_store_takes_no_commit(folder: Path) -> None:
    """Another process may have the lock, and commits of its own."""
    with Store.open(folder) as store:
        plan = plan_unproved(store.state, read_commands("-A INPUT -s 192.0.2.7 -j DROP", store.state.master))
    read_only = Store.open(folder, to_write=False)
    for refused in (store, read_only):
        with pytest.raises(HitablesError, match="closed, or open for reading only"):
            refused.commit(plan)
        with pytest.raises(HitablesError, match="closed, or open for reading only"):
            refused.compact()
    with Store.open(folder) as again:
        assert again.state.version == 4


@pytest.mark.parametrize("tail", ["garbage\n", "# nothing", "\n", "updat"])
def test_a_journal_that_ends_in_something_else_is_damaged(folder: Path, tail: str) -> None:
    """No crash leaves it, and there may have been commits in its place."""
    (journal,) = folder.glob("journal.*")
    whole = journal.read_text()
    for before, version in (("", 1), (whole, 4)):
        journal.write_text(before + tail)
        with pytest.raises(
            Damaged, match=f"has no first line; all before it, to version {version}, is whole"
        ):
            Store.open(folder)
    for zeros in ("\0" * 40, "begi" + "\0" * 40):
        journal.write_text(whole + zeros)
        with Store.open(folder) as store:
            assert store.state.version == 4


def test_the_files_that_are_left_are_named_where_the_one_that_names_them_is_gone(folder: Path) -> None:
    """To create a new state there would replace the rule list."""
    (folder / "state").unlink()
    with pytest.raises(Damaged, match=r"the file state is missing.*: .*master\.\d+\.rules"):
        Store.open(folder)


def test_damage_is_reported_with_the_intact_parts(folder: Path) -> None:
    (journal,) = folder.glob("journal.*")
    whole = journal.read_bytes()
    at = whole.index(b"192.0.2.9")
    journal.write_bytes(whole[:at] + b"192.0.2.8" + whole[at + 9 :])
    with pytest.raises(Damaged, match="all before it, to version 2, is whole"):
        Store.open(folder)
    journal.write_bytes(whole)
    (loaded,) = folder.glob("loaded.*")
    text = loaded.read_text()
    loaded.write_text(text.replace("DROP", "ACCEPT", 1))
    with pytest.raises(
        Damaged, match=r"loaded\.1\.rules \(its checksum differs\); whole: master\.1\.rules, map\.1"
    ):
        Store.open(folder)
    loaded.write_text(text)
    state = folder / "state"
    content = state.read_text()
    state.write_text(content.replace("delta 32", "delta 99"))
    with pytest.raises(Damaged, match=r"state is damaged .* the master list is in master\.1\.rules"):
        Store.open(folder)
    state.write_text(content.replace("sflgen-state 2", "sflgen-state 5"))
    with pytest.raises(HitablesError, match="format 5, this sflgen reads formats 2 to 4"):
        Store.open(folder)
    state.write_text(content)
    Store.open(folder).close()


def test_a_missing_state_and_a_second_one_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(HitablesError, match="holds no state"):
        Store.open(tmp_path / "nothing")
    with (
        Store.open(folder, to_write=False) as store,
        pytest.raises(HitablesError, match="holds a state already"),
    ):
        Store.create(folder, store.state)


def test_files_of_others_stay_in_the_directory(folder: Path) -> None:
    names = "master.rules", "loaded.rules", "map.txt", "journal", "map.1.old", "journal.1~", "master.x.rules"
    for name in names:
        (folder / name).write_text(name)
    with Store.open(folder) as store:
        store.compact()
        store.discard()
    assert {path.name: path.read_text() for path in folder.iterdir()} == {name: name for name in names}


@pytest.mark.parametrize("name", ["master.7.rules", "loaded.1.rules", "map.2", "journal.1"])
def test_a_new_state_does_not_replace_files_of_others(folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("notes")
    with Store.open(folder, to_write=False) as store, pytest.raises(HitablesError, match=f"holds {name}: "):
        Store.create(tmp_path, store.state)
    assert (tmp_path / name).read_text() == "notes"


def test_a_state_whose_creation_fails_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sflgen.store.flush_folder", interrupted)
    with Store.open(folder, to_write=False) as store, pytest.raises(KeyboardInterrupt):
        Store.create(tmp_path / "new", store.state)
    assert not (tmp_path / "new").exists()


def test_a_patch_that_the_kernel_refuses_changes_nothing(folder: Path) -> None:
    def refuse(patch: str) -> None:
        raise LiveError("no")

    (journal,) = folder.glob("journal.*")
    before = journal.read_bytes()
    with Store.open(folder) as store:
        state = store.state
        with pytest.raises(LiveError):
            store.commit(plan_unproved(state, read_commands("-P INPUT DROP", state.master)), refuse)
        assert store.state is state
    assert journal.read_bytes() == before


def interrupt_a_load(folder: Path) -> None:
    """A commit of version 5, of which it is unknown whether the kernel has it."""

    def killed(patch: str) -> None:
        raise KeyboardInterrupt

    with Store.open(folder) as store, pytest.raises(KeyboardInterrupt):
        store.commit(plan_unproved(store.state, read_commands("-P INPUT DROP", store.state.master)), killed)


def test_a_commit_interrupted_during_the_load_is_unsettled(folder: Path) -> None:
    interrupt_a_load(folder)
    with Store.open(folder) as store:
        assert store.unsettled is not None and store.state.version == store.unsettled.version + 1
        with pytest.raises(HitablesError, match="it is unknown"):
            store.commit(plan_unproved(store.state, read_commands("-P INPUT ACCEPT", store.state.master)))
        store.undo()
    with Store.open(folder) as store:
        assert store.unsettled is None and store.state.version == 4


def test_a_long_journal_is_kept_while_its_last_commit_is_unsettled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new generation would hold the commit as if the kernel had it."""
    interrupt_a_load(folder)
    monkeypatch.setattr("sflgen.store.MAX_JOURNAL", 0)
    for _ in range(2):
        with Store.open(folder) as store:
            assert store.unsettled is not None and store.state.version == 5


def test_an_unsettled_commit_can_be_undone_though_the_line_behind_it_is_cut_off(folder: Path) -> None:
    """The machine stopped while it wrote that the kernel has the commit."""
    interrupt_a_load(folder)
    (journal,) = folder.glob("journal.*")
    with journal.open("ab") as file:
        file.write(b"settled")
    with Store.open(folder) as store:
        assert store.unsettled is not None
        store.undo()
    with Store.open(folder) as store:
        assert store.unsettled is None and store.state.version == 4


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A test adds events of its own."""
    return recorded(monkeypatch)


def test_a_commit_is_on_disk_before_its_patch_is_shown_and_before_a_load_returns(
    folder: Path, events: list[str]
) -> None:
    with Store.open(folder) as store:
        plan = plan_unproved(store.state, read_commands("-P INPUT DROP", store.state.master))
        store.commit(plan, show=lambda patch: events.append("shown"))
        plan = plan_unproved(store.state, read_commands("-P INPUT ACCEPT", store.state.master))
        store.commit(plan, load=lambda patch: events.append("loaded"))
    assert events == ["flushed journal.1", "shown", "loaded", "flushed journal.1"]


def test_a_commit_that_is_taken_back_is_removed_from_the_disk(folder: Path, events: list[str]) -> None:
    def broken(patch: str) -> None:
        events.append("not shown")
        raise BrokenPipeError

    with Store.open(folder) as store, pytest.raises(BrokenPipeError):
        plan = plan_unproved(store.state, read_commands("-P INPUT DROP", store.state.master))
        store.commit(plan, show=broken)
    assert events == ["flushed journal.1", "not shown", "flushed journal.1"]


def test_the_files_of_a_generation_are_on_disk_before_it_becomes_current(
    folder: Path, events: list[str]
) -> None:
    with Store.open(folder) as store:
        store.compact()
    files = ("master.2.rules", "loaded.2.rules", "map.2", "journal.2", "state.new")
    assert events == [*(f"flushed {name}" for name in files), "renamed state", f"flushed {folder.name}"]


@pytest.mark.parametrize("loads", [False, True])
def test_an_interrupt_while_the_record_is_written_loses_no_patch(
    folder: Path, loads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes just when the record is in the journal."""
    (journal,) = folder.glob("journal.*")
    before, append, patches = journal.read_bytes(), Store._append, list[str]()

    def interrupted(store: Store, text: str, durable: bool = True) -> None:
        append(store, text, durable)
        if not patches:
            signal.raise_signal(signal.SIGINT)

    with Store.open(folder) as store:
        state = store.state
        plan = plan_unproved(state, read_commands("-P INPUT DROP", state.master))
        monkeypatch.setattr(Store, "_append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.commit(plan, **{"load" if loads else "show": patches.append})
        assert store.state is (plan.after if loads else state) and store.unsettled is None
    assert patches == ([plan.text] if loads else []), "a load is ended first"
    assert (journal.read_bytes() == before) is not loads


FULL = """
import resource, signal, sys
from pathlib import Path
from sflgen.planner import fold_unproved
from sflgen.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Store.open(Path(sys.argv[1])) as store:
    (journal,) = Path(sys.argv[1]).glob("journal.*")
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + 100, resource.RLIM_INFINITY))
    version = store.state.version
    for do in (lambda: store.commit(fold_unproved(store.state)), store.compact):
        try:
            do()
        except Exception as error:
            print(type(error).__name__, error)
    assert store.state.version == version
"""


def test_a_full_disk_is_an_error_and_loses_nothing(folder: Path) -> None:
    with Store.open(folder) as store:
        before = store.state
    done = subprocess.run([sys.executable, "-c", FULL, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("HitablesError") == 2 and "File too large" in done.stdout, done.stdout
    with Store.open(folder) as store:
        assert same(store.state, before)
    assert not list(folder.glob("*.2*")) and not list(folder.glob("*.new"))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_full_disk_at_the_start_leaves_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sflgen.store._write_durably", full)
    with pytest.raises(HitablesError) as refusal:
        Store.create(tmp_path / "st", start_unproved(prefixes(8), Settings()).after)
    assert str(refusal.value) == f"{tmp_path / 'st'}: No space left on device; no state is begun"
    assert not (tmp_path / "st" / "state").exists()


def test_a_long_journal_grows_while_the_disk_has_no_room_for_a_new_generation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sflgen.store.MAX_JOURNAL", 0)
    with monkeypatch.context() as patch:
        patch.setattr("sflgen.store._write_durably", full)
        with Store.open(folder) as store:
            store.commit(plan_unproved(store.state, read_commands(ban(store.state, 5), store.state.master)))
            done = store.state
    (journal,) = folder.glob("journal.*")
    assert journal.stat().st_size
    with Store.open(folder) as store:
        assert same(store.state, done)
    (journal,) = folder.glob("journal.*")
    assert not journal.stat().st_size, "now there was room"


def test_a_loaded_patch_is_committed_even_if_the_disk_is_full_then(folder: Path) -> None:
    """After an error the user would repeat the update."""
    (journal,) = folder.glob("journal.*")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def load(patch: str) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + 3, limit[1]))

    with Store.open(folder) as store:
        try:
            store.commit(plan_unproved(store.state, read_commands("-P INPUT DROP", store.state.master)), load)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert store.state.version == 5 and b"\nend 5 " in journal.read_bytes()
        assert not journal.read_bytes().endswith(b"settled 5\n"), "there was no room"
        store.commit(plan_unproved(store.state, read_commands("-P OUTPUT DROP", store.state.master)))
        done = store.state
    with Store.open(folder) as store:
        assert same(store.state, done) and store.unsettled is None


def test_a_new_generation_that_may_not_be_on_disk_yet_keeps_the_old_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Store.open(folder) as store:
        with monkeypatch.context() as patch:
            patch.setattr("sflgen.store.flush_folder", broken)
            with pytest.raises(HitablesError, match="the state is whole"):
                store.compact()
        assert len([*folder.glob("master.*.rules")]) == 2
        store.commit(plan_unproved(store.state, read_commands("-P INPUT DROP", store.state.master)))
        done = store.state
    with Store.open(folder) as store:
        assert same(store.state, done)
        store.compact()
    assert len([*folder.glob("master.*.rules")]) == 1


WRITER = """
import sys
from pathlib import Path
from sflgen.planner import plan_unproved
from sflgen.store import Store
from sflgen.commands import read_commands
with Store.open(Path(sys.argv[1])) as store:
    print("open", flush=True)
    for number in range(1000):
        command = f"-I INPUT {1 + number % 30} -s 10.{number % 250}.0.0/16 -p udp -j DROP"
        store.commit(plan_unproved(store.state, read_commands(command, store.state.master)))
        print(store.state.version, flush=True)
        if number % 7 == 0:
            store.compact()
"""


def test_a_killed_writer_leaves_all_answered_commits(folder: Path) -> None:
    rng = random.Random(5)
    for _ in range(examples(16)):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            output = [writer.stdout.readline() for _ in range(rng.randrange(1, 12))]
            # At some moment of the next commits, which take some milliseconds each.
            signal.sigtimedwait([], rng.random() / 50)
            writer.kill()
            output += writer.stdout.read().split("\n")[:-1]
        versions = [int(each) for each in output if each.strip().isdigit()]
        with Store.open(folder) as store:
            assert store.unsettled is None
            assert store.state.version >= max(versions, default=0)
            assert store.state.version <= max(versions, default=store.state.version) + 1
            assert isinstance(verify(store.state), Equal)
            store.commit(fold_unproved(store.state))
            assert not store.state.pending()


@pytest.mark.parametrize("mode", [None, 0o755])
def test_a_state_is_for_its_owner_whatever_the_umask(mode: int | None, tmp_path: Path) -> None:
    folder = tmp_path / "st"
    umask = os.umask(0)
    try:
        if mode is not None:
            folder.mkdir(mode)
        state = start_unproved(prefixes(20), Settings()).after
        with Store.create(folder, state) as store:
            store.compact()
    finally:
        os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == (mode or 0o700), "one that exists keeps its mode"


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_state_that_is_removed_is_told(is_made_anew: bool, tmp_path: Path) -> None:
    state = start_unproved(prefixes(20), Settings()).after
    with Store.create(tmp_path / "st", state) as store:
        shutil.rmtree(tmp_path / "st")
        if is_made_anew:
            Store.create(tmp_path / "st", state).close()
        updates = read_commands("-I INPUT 1 -s 192.0.2.7 -j DROP", state.master)
        with pytest.raises(HitablesError, match=r"the state in .* was removed by .*; nothing is changed"):
            store.commit(plan_unproved(state, updates))
        assert store.state is state
    if is_made_anew:
        with Store.open(tmp_path / "st") as anew:
            assert anew.state.version == state.version


def test_who_waits_for_a_lock_that_is_removed_does_not_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed_meanwhile(handle: int, operation: int) -> None:
        (tmp_path / "st/lock").unlink(missing_ok=True)

    Store.create(tmp_path / "st", start_unproved(prefixes(20), Settings()).after).close()
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", removed_meanwhile)
        with pytest.raises(HitablesError, match="removed, or made anew"):
            Store.open(tmp_path / "st")
    Store.open(tmp_path / "st").close()


def test_a_file_system_without_locks_is_not_taken_for_a_state_in_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(HitablesError, match=r"/lock: No locks available$"):
        Store.open(folder)


@pytest.mark.needs_kernel
def test_status_compares_on_a_read_only_file_system(tmp_path: Path) -> None:
    folder = tmp_path / "st"
    script = f"""set -e
mount -t tmpfs none {tmp_path}; cd {tmp_path}
printf '*filter\\n-A INPUT -s 10.0.0.1 -j DROP\\nCOMMIT\\n' | iptables-nft-restore
{SFLGEN} init --live --backend nft --state {folder}
mount -o remount,ro {tmp_path}
{SFLGEN} status --live --state {folder}
iptables-nft -F INPUT
{SFLGEN} status --live --state {folder} || echo "status $?"
"""
    with Namespace() as namespace:
        printed = namespace.run(["unshare", "-m", "sh", "-c", script])
    assert "the kernel holds the rule set of the state" in printed and printed.endswith("status 1\n")
