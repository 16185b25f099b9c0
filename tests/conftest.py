"""What all tests share: markers, the folder beside the project, and the count that may not fall.

A test that loads rules into a kernel is marked `needs_kernel`: it is skipped, with the reason,
where that cannot be done, and fails there when CI is set.  A test that reads the folder `shared`
beside the project takes the fixture of that name and is skipped where the folder is missing.
"""

from __future__ import annotations

import sys

# Rewriting asserts, of Hypothesis as of all test files, takes more than half of the time until the first test, in
# each worker; pytest keeps the result where Python may write byte code.  So this precedes the imports.
sys.dont_write_bytecode = False

import compileall
import functools
import gc
import importlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import forked, small_namespace
from support.scale import DEEP, FEWER, USUAL

# An editable install compiles the engine when it is imported.  Done here it is done once, before
# the workers start; two at a time would spoil ninja's records.
import hitables  # noqa: F401
from hitables.engine import run as engine_run
from hitables.kernel import stopwatch

# tools/sanitize: the engine must be the one that it has built.
if sanitized := os.environ.get("SANITIZED_ENGINE"):
    loaded = str(importlib.import_module("hitables.core._engine").__file__)
    if not loaded.startswith(sanitized):
        sys.exit(f"{loaded} is tested, not the engine in {sanitized}")
    if "libasan" not in Path("/proc/self/maps").read_text():
        sys.exit("libasan is not loaded")

# A test that fails says how to repeat it; how fast a machine is fails none.
settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=FEWER,
)
settings.register_profile("ci", settings.get_profile("ci"), max_examples=FEWER)
settings.register_profile("sanitize", settings.get_profile("default"), max_examples=25)
settings.register_profile(
    "deep", settings.get_profile("default"), max_examples=DEEP * USUAL, derandomize=False
)
# Where CI is set, the examples of Hypothesis never change.
settings.load_profile("ci" if os.environ.get("CI") else "default")

pytest_plugins = ["support.shuffled", "support.one_backend", "support.kernel_first"]

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
begun: set[Path] = set()  # files whose tests have begun in this process
# A worker keeps what it has freed: glibc would give it back to the kernel, which clears each page before it is used
# again; of long lists proved one after the other that is a quarter of the processor time.
KEEP_FREED = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TOP_PAD_": str(1 << 24),
}
# The thresholds of Python's garbage collector, whose usual ones are 700, 10, 10: a worker holds many objects, and each
# collection goes through them.
GC_THRESHOLDS = 20_000, 20, 20
KERNEL_COMMANDS = ("unshare", "ip", "iptables-legacy-restore", "iptables-nft-restore")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--at-least", metavar="FILE", help="fail if fewer tests ran than FILE says")


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    stopwatch.SLICE = 0.01  # what is measured in the kernel is not what is tried
    engine_run.TIMED, engine_run.SECONDS = forked.TIMED, forked.SECONDS
    if not hasattr(config, "workerinput"):
        # An editable install reads byte code but writes none, so each of some 500 processes would compile
        # what it imports (a third of the time that a command takes to start).
        for package in ("hitables", "sflgen", "benchmarks"):
            compileall.compile_dir(ROOT / package, quiet=2)
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        os.environ.update(KEEP_FREED)
    else:
        for name in KEEP_FREED:  # what a test starts gives memory back, as what users start
            os.environ.pop(name, None)
        small_namespace.begin()
        config.add_cleanup(small_namespace.end)
    os.environ["SSH_CONNECTION"] = ""  # no rules of tests end the session of who runs them
    # The lock of iptables-legacy is one for the machine, whatever the namespace; who finds it held fails.
    locks = tempfile.TemporaryDirectory(prefix="hitables-tests-")
    config.add_cleanup(locks.cleanup)
    os.environ["XTABLES_LOCKFILE"] = os.path.join(locks.name, "xtables.lock")
    config.addinivalue_line("markers", "needs_kernel: loads rules in a network namespace of its own")
    config.addinivalue_line(
        "markers", "either_backend: `make test` runs it with one backend, `make deep` with both"
    )
    config.addinivalue_line("markers", "injects_fault: makes a builder do wrong, to see what becomes of it")
    config.addinivalue_line("markers", "engine: drives the C engine; runs under the sanitizers too")


@pytest.hookimpl(tryfirst=True)  # before -m picks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test file that names the C engine, or its face, drives it."""
    drives = functools.cache(
        lambda path: "hitables.core" in path.read_text() or "hitables.engine" in path.read_text()
    )
    for item in items:
        if drives(item.path):
            item.add_marker("engine")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Take what is there out of the garbage collector, where the tests of a file begin.

    A worker holds hundreds of megabytes of modules, tests and caches in the end.  A collection would go through
    all of them, and in a forked process, such as that of each namespace, copy their pages as well.
    """
    if item.path not in begun:
        begun.add(item.path)
        gc.collect()
        gc.freeze()
    yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_kernel"):
        require_kernel()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of too few tests.  Skipped tests count: a reason is printed for each."""
    clients = sys.modules.get("support.command_clients")
    if clients is not None:
        clients.ended.close()
    if too_few(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say so last, behind the names of what failed."""
    lack = too_few(config)
    if lack:
        config.get_terminal_writer().line(lack, red=True)


def too_few(config: pytest.Config) -> str:
    """What is to be said of a run of fewer tests than --at-least asks for; "" of any other."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    file = config.getoption("--at-least")
    if not file or reporter is None or hasattr(config, "workerinput"):
        return ""
    kinds = ("passed", "failed", "error", "skipped", "xfailed")
    ran = sum(len(reporter.stats.get(kind, ())) for kind in kinds)
    wanted = int(Path(file).read_text())
    return "" if ran >= wanted else f"{ran} tests ran, {file} says {wanted}; `make count` records fewer"


@pytest.fixture(autouse=True)
def no_fault_is_spared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A chain that compile leaves as it was because of a fault of ours fails the test, in this process.

    Not one that injects the fault, which is marked `injects_fault`.
    """
    if request.node.get_closest_marker("injects_fault"):
        yield
        return
    from hitables.compiler import fault_search, result, tables

    spared: list[tables.ChainFault] = []

    def fault(*given: str) -> tables.ChainFault:
        spared.append(real(*given))
        return spared[-1]

    real = tables.ChainFault
    monkeypatch.setattr(tables, "ChainFault", fault)
    monkeypatch.setattr(fault_search, "ChainFault", fault)
    yield
    assert not [each for each in spared if each.why != result.MIXED]


@pytest.fixture
def small_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what makes namespaces in this process, which is large."""
    small_namespace.use(monkeypatch)


@functools.cache
def kernel_lacks() -> str:
    """What stands in the way of loading rules into a fresh network namespace; "" if nothing."""
    if os.geteuid() != 0:
        return "root"
    for command in KERNEL_COMMANDS:
        if shutil.which(command) is None:
            return command
    for restore in ("iptables-legacy-restore", "iptables-nft-restore"):
        command_line, empty = ["unshare", "-n", restore], "*filter\nCOMMIT\n"
        done = subprocess.run(command_line, input=empty, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"a kernel that {restore} can load rules into ({done.stderr.strip()})"
    return ""


def require_kernel() -> None:
    lack = kernel_lacks()
    if lack and os.environ.get("CI") == "true":
        pytest.fail(f"needs {lack}", pytrace=False)
    if lack:
        pytest.skip(f"needs {lack}")


@pytest.fixture(scope="session")
def needs_kernel() -> None:
    """For tests that would rather take a fixture than a mark."""
    require_kernel()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of rule sets, traces and measured figures that the project may not ship."""
    if not SHARED.is_dir():
        pytest.skip("the folder ../shared is missing")
    return SHARED
