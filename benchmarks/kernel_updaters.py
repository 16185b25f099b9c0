"""Ways in which updates reach the rules of a running kernel, each behind one interface.

An `Updater` is made in the namespace whose rules it changes, has its rule set loaded when it is made, and
performs updates as they fall due.  Most perform one after the other, each with the command that an
administrator would use; an update that falls due meanwhile waits.

    linear   the plain chain: one `iptables -I` or `-D` for each update
    reload   the chain compiled anew with all updates that are due, proved, and loaded whole; the updater
             compiles itself, so the start of `hitables` is not included
    overlay  sflgen with every update in front of the tree, and a fold by update max_updates + 1: the SFL
             paper's buffer; updates wait for the fold
    graft    `sflgen stream --live` as it comes, up to OUTSTANDING updates not answered; folds are in the
             background
    ipset    one rule and a set hash:net: `ipset add` or `del`
    nft set  one rule and an interval set of nf_tables: `nft add element` or `delete element`
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sflgen
from hitables.api import read
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.emit.text import write
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.namespace import run
from sflgen.commit import loader
from sflgen.edits import apply
from sflgen.kernel import Kernel

SFLGEN = str(Path(sys.executable).parent / "sflgen")
# The paper's delta in its table II.
MAX_UPDATES = 20
# No entry costs too much where updates are counted.
UNBOUNDED = 1 << 20
# Updates sent to a stream and not answered: several clients, or one that does not wait.
OUTSTANDING = 8


@dataclass(frozen=True, slots=True)
class Update:
    """One update: its iptables command, without the tool; and its address, where it has no other match."""

    command: str
    address: str = ""

    @property
    def inserts(self) -> bool:
        return self.command.startswith("-I")


@dataclass(frozen=True, slots=True)
class Done:
    """What an updater did.

    latencies  milliseconds from when an update was due until the kernel had it, of those done in time
    rebuilds   how often a tree was grown anew; None: it is not known
    """

    latencies: tuple[float, ...]
    rebuilds: int | None


class Updater(ABC):
    """*text*: the plain rule set; *folder*: where a state of sflgen for it may be."""

    # How often a tree was grown anew, where that is counted.
    rebuilds: int | None = None
    # Whether it performs all updates that are due at once.
    batches = False

    def __init__(self, text: str, backend: Backend, folder: Path) -> None:
        self.text, self.backend, self.folder = text, backend, folder
        self.tool = f"iptables-{backend.value}"
        self.load()

    def restore(self, text: str) -> None:
        run([f"{self.tool}-restore"], text)

    @abstractmethod
    def load(self) -> None:
        """Load the rule set before the first update."""

    @abstractmethod
    def perform(self, updates: Sequence[Update]) -> None:
        """Perform *updates*, of which there is one unless `batches`; the kernel has them on return."""

    def close(self) -> None:
        """End all processes: here there are none."""
        return

    def drive(self, updates: Sequence[Update], rate: float, seconds: float) -> Done:
        """Perform *updates* as they fall due, *rate* a second, for *seconds*."""
        latencies: list[float] = []
        began, at = time.perf_counter(), 0
        while at < len(updates):
            now = time.perf_counter() - began
            due = (at + 0.5) / rate
            if now >= seconds:
                break
            if now < due:
                time.sleep(min(due, seconds) - now)
                continue
            ready = max(1, min(len(updates), int(now * rate + 0.5)) - at) if self.batches else 1
            self.perform(updates[at : at + ready])
            now = time.perf_counter() - began
            if now <= seconds:
                latencies += [1000 * (now - (at + number + 0.5) / rate) for number in range(ready)]
            at += ready
        return Done(tuple(latencies), self.rebuilds)


class Linear(Updater):
    """The plain chain."""

    def load(self) -> None:
        self.restore(self.text)

    def perform(self, updates: Sequence[Update]) -> None:
        (update,) = updates
        run([self.tool, *update.command.split()])


class Reload(Updater):
    """The chain compiled and loaded whole, for all updates that are due."""

    batches = True

    def load(self) -> None:
        self.master = read(self.text, family=Family.IPV4)
        self.compile()
        self.rebuilds = 0

    def compile(self) -> None:
        self.restore(compile_text(write(self.master), Options(backend=self.backend)).text)
        self.rebuilds = (self.rebuilds or 0) + 1

    def perform(self, updates: Sequence[Update]) -> None:
        commands = "\n".join(update.command for update in updates)
        self.master = apply(self.master, sflgen.read_commands(commands, self.master))
        self.compile()


class Overlay(Updater):
    """sflgen with all entries in front of the tree, folded by update MAX_UPDATES + 1."""

    def load(self) -> None:
        self.rebuilds = 0
        settings = sflgen.Settings(self.backend, delta=UNBOUNDED, max_updates=MAX_UPDATES)
        state = sflgen.start(read(self.text, family=Family.IPV4), settings).after
        self.restore(write(state.loaded))
        self.store = sflgen.create(str(self.folder), state)
        self.kernel = Kernel(Family.IPV4, settings, stays=True)

    def perform(self, updates: Sequence[Update]) -> None:
        (update,) = updates
        state = self.store.state
        edits = sflgen.read_commands(update.command, state.master)
        folds = any(layout.updates >= MAX_UPDATES for layout in state.layouts.values())
        plan = sflgen.plan(state, edits, sflgen.Strategy.FOLD if folds else sflgen.Strategy.OVERLAY)
        self.rebuilds = (self.rebuilds or 0) + plan.folds
        self.store.commit(plan, loader(self.kernel, self.store, plan))

    def close(self) -> None:
        self.kernel.close()
        self.store.close()


class Graft(Updater):
    """`sflgen stream --live`, in a process of its own."""

    def load(self) -> None:
        state = sflgen.start(read(self.text, family=Family.IPV4), sflgen.Settings(self.backend)).after
        self.restore(write(state.loaded))
        sflgen.create(str(self.folder), state).close()
        self.stream = subprocess.Popen(
            [SFLGEN, "stream", "--live", "--state", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.output = b""
        self.send("status")
        while not self.answers(60):
            pass

    def perform(self, updates: Sequence[Update]) -> None:
        for update in updates:
            self.send(update.command)
        answered = 0
        while answered < len(updates):
            answered += self.answers(60)

    def send(self, line: str) -> None:
        assert self.stream.stdin is not None
        self.stream.stdin.write(f"{line}\n".encode())
        self.stream.stdin.flush()

    def answers(self, seconds: float) -> int:
        """How many answers there are, after at most *seconds*."""
        assert self.stream.stdout is not None
        if not select.select([self.stream.stdout], [], [], max(0.0, seconds))[0]:
            return 0
        read_now = os.read(self.stream.stdout.fileno(), 1 << 20)
        if not read_now:
            raise HitablesError(f"sflgen stream has ended, with exit status {self.stream.wait()}")
        *lines, self.output = (self.output + read_now).split(b"\n")
        for line in lines:
            if line.startswith(b"error "):
                raise HitablesError(f"sflgen stream: {line.decode('utf-8', 'replace')}")
        return sum(line.startswith(b"ok ") for line in lines)

    def drive(self, updates: Sequence[Update], rate: float, seconds: float) -> Done:
        latencies: list[float] = []
        sent: deque[int] = deque()
        began, at = time.perf_counter(), 0
        while (now := time.perf_counter() - began) < seconds and (at < len(updates) or sent):
            due = (at + 0.5) / rate
            if at < len(updates) and now >= due and len(sent) < OUTSTANDING:
                self.send(updates[at].command)
                sent.append(at)
                at += 1
                continue
            waits = seconds if len(sent) == OUTSTANDING or at == len(updates) else min(due, seconds)
            for _ in range(self.answers(waits - now)):
                latencies.append(1000 * (time.perf_counter() - began - (sent.popleft() + 0.5) / rate))
        while sent:  # these are late
            for _ in range(self.answers(60)):
                sent.popleft()
        return Done(tuple(latencies), None)

    def close(self) -> None:
        assert self.stream.stdin is not None
        self.stream.stdin.close()
        self.stream.wait()


class IpSet(Updater):
    """One rule that asks a set of networks."""

    def load(self) -> None:
        members = "".join(f"add hosts {each}\n" for each in addresses_of(self.text))
        run(["ipset", "restore"], f"create hosts hash:net\n{members}")
        rule = "-A FORWARD -m set --match-set hosts src -j DROP"
        self.restore(f"*filter\n:FORWARD ACCEPT [0:0]\n{rule}\nCOMMIT\n")

    def perform(self, updates: Sequence[Update]) -> None:
        (update,) = updates
        run(["ipset", "add" if update.inserts else "del", "hosts", update.address])


class NftSet(Updater):
    """One rule that asks an interval set of nf_tables, beside no table of iptables."""

    def load(self) -> None:
        elements = ", ".join(addresses_of(self.text))
        table = (
            "table ip guard {\n\tset hosts { type ipv4_addr; flags interval; "
            f"elements = {{ {elements} }}; }}\n\tchain forward {{ type filter hook forward priority filter; "
            "policy accept; ip saddr @hosts counter drop; }\n}\n"
        )
        run(["nft", "-f", "-"], table)

    def perform(self, updates: Sequence[Update]) -> None:
        (update,) = updates
        verb = "add" if update.inserts else "delete"
        run(["nft", verb, "element", "ip", "guard", "hosts", f"{{ {update.address} }}"])


def addresses_of(text: str) -> list[str]:
    """The sources of the rules in *text*, each of which has no other match."""
    return [line.split()[3] for line in text.splitlines() if line.startswith("-A FORWARD -s ")]


UPDATERS: dict[str, type[Updater]] = {
    "linear": Linear, "reload": Reload, "overlay": Overlay, "graft": Graft, "ipset": IpSet, "nft set": NftSet,
}  # fmt: skip

# The updater of this process, kept between the calls of its namespace.
_made: list[Updater] = []


def make(way: str, text: str, backend: Backend, folder: Path, cpus: Sequence[int]) -> None:
    """Run inside: load the rule set of *way*; it and its processes run on *cpus*."""
    os.sched_setaffinity(0, set(cpus))
    _made.append(UPDATERS[way](text, backend, folder))


def drive(updates: Sequence[Update], rate: float, seconds: float) -> Done:
    """Run inside: perform *updates* with the updater that was made."""
    if not updates:
        time.sleep(seconds)
        return Done((), _made[-1].rebuilds)
    return _made[-1].drive(updates, rate, seconds)


def end() -> None:
    """Run inside: end what the updater started."""
    _made.pop().close()
