"""A program that changes rules as docker does: its chains in two tables, containers that come and go.

Each command must succeed, and after each step its chains must have just the rules that it gave them, and
be entered from where it entered them.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

from hitables.errors import HitablesError
from hitables.kernel.namespace import run

PAUSE = 0.1  # seconds between two steps
_CHAINS = (("filter", "DOCKER"), ("filter", "DOCKER-USER"), ("nat", "DOCKER"))
_JUMPS = (
    ("filter", "FORWARD", "-j DOCKER-USER"),
    ("filter", "FORWARD", "-o docker0 -j DOCKER"),
    ("nat", "PREROUTING", "-m addrtype --dst-type LOCAL -j DOCKER"),
)


class DockerLike:
    """*restarts*: whether it also removes and makes all its chains now and then."""

    def __init__(self, tool: str, seed: int, restarts: bool = True) -> None:
        self.tool, self.restarts = tool, restarts
        self.commands = self.starts = 0
        self.failures: list[str] = []
        self._random = random.Random(seed)
        self._containers: list[int] = []
        self._stop = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start, and go on in a thread; stop, and remove all chains, in the end."""
        self.start()
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def start(self) -> None:
        self.starts += 1
        for table, chain in _CHAINS:
            self._do(table, "-N", chain)
        for table, chain, rule in _JUMPS:
            self._do(table, "-I", chain, *rule.split())
        self._do("filter", "-A", "DOCKER-USER", "-s", "192.0.2.66", "-j", "DROP")
        self._do("filter", "-A", "DOCKER-USER", "-j", "RETURN")

    def stop(self) -> None:
        for table, chain, rule in _JUMPS:
            self._do(table, "-D", chain, *rule.split())
        for table, chain in _CHAINS:
            self._do(table, "-F", chain)
            self._do(table, "-X", chain)
        self._containers.clear()

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE):
                self._step()
                self._check()
        except HitablesError as error:
            self.failures.append(str(error))

    def _step(self) -> None:
        choice = self._random.random()
        if self.restarts and choice < 0.05:
            self.stop()
            self.start()
        elif self._containers and (choice < 0.5 or len(self._containers) > 8):
            self._change("-D", self._containers.pop(self._random.randrange(len(self._containers))))
        else:
            container = self._random.choice([n for n in range(2, 200) if n not in self._containers])
            self._containers.append(container)
            self._change("-A", container)

    def _change(self, command: str, container: int) -> None:
        for table, rule in _rules(container):
            self._do(table, command, "DOCKER", *rule.split())

    def _check(self) -> None:
        wanted = {("filter", "DOCKER"): len(self._containers), ("nat", "DOCKER"): len(self._containers),
                  ("filter", "DOCKER-USER"): 2}  # fmt: skip
        for (table, chain), count in wanted.items():
            found = self._do(table, "-S", chain).count("\n-A ")
            if found != count:
                raise HitablesError(f"table {table}, chain {chain}: {found} rules, not {count}")
        for table, chain, rule in _JUMPS:
            self._do(table, "-C", chain, *rule.split())
        if self._containers:
            for table, rule in _rules(self._random.choice(self._containers)):
                self._do(table, "-C", "DOCKER", *rule.split())

    def _do(self, table: str, *words: str) -> str:
        self.commands += 1
        return run([self.tool, "-w", "-t", table, *words])


def _rules(container: int) -> tuple[tuple[str, str], ...]:
    here, port = f"172.17.0.{container}", 8000 + container
    return (
        ("filter", f"-d {here}/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport {port} -j ACCEPT"),
        ("nat", f"! -i docker0 -p tcp -m tcp --dport {port} -j DNAT --to-destination {here}:{port}"),
    )
