"""Patches in real kernels: after each, the kernel holds the rule set of the state; and the commands."""

from __future__ import annotations

import os
import random
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import command_clients, small_namespace
from support.commands import make_updates
from support.planned_updates import favoured, keys, prefixes
from support.rule_texts import make_text
from support.scale import examples
from support.sflgen_command import SFLGEN, both, forked, sflgen, step
from support.small_namespace import Namespace

import hitables
from benchmarks.kills import answered_until_killed, done_of, state_after_kill
from hitables.errors import LiveError, Unsupported
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load
from hitables.kernel.namespace import run
from sflgen.commands import read_commands
from sflgen.commit import loader
from sflgen.kernel import Drift, Kernel
from sflgen.planner import plan_unproved, start_unproved
from sflgen.settings import Settings
from sflgen.store import Store

Listening = Callable[[], socket.socket]


@pytest.mark.needs_kernel
@both
@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_holds_the_rule_set_of_the_state_after_each_patch(
    backend: str, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    family = [Family.IPV4, Family.IPV6][seed % 2]
    lines = make_text(rng, family, rules=40, memory=0.1).splitlines()
    # iptables-legacy-save does not print a test that never holds, and misread rules are refused.
    loads = "\n".join(line for line in lines if not re.search("! --[sd]port 0:65535", line)) + "\n"
    program = hitables.read(loads, family=family)
    plan = start_unproved(program, Settings(backend, min_length=3, delta=6))
    taken = 0
    with small_namespace.Namespace() as namespace:
        load(hitables.write(program), family, Backend(backend), namespace)
        Store.create(tmp_path / "st", plan.before).close()
        assert namespace.call(step, str(tmp_path / "st"), plan)
        state = plan.after
        for _ in range(examples(15)):
            _, updates, _ = make_updates(rng, state.master, rng.choice([1, 1, 3]), favoured(state))
            try:
                plan = plan_unproved(state, updates)
            except Unsupported:
                continue
            if namespace.call(step, str(tmp_path / "st"), plan):
                state, taken = plan.after, taken + 1
    assert taken > 2


def refused(folder: str) -> str:
    """A patch of two tables, of which the kernel takes the first and refuses the second."""
    with Store.open(Path(folder)) as store:
        kernel = Kernel(store.state.master.family, store.state.settings)
        before_load, before = keys(kernel.contents()), store.state
        commands = "-t mangle -A PREROUTING -j MARK --set-mark 1\n-A INPUT -m rateest --rateest none --rateest-gt --rateest-pps 5 -j DROP"
        plan = plan_unproved(before, read_commands(commands, before.master))
        try:
            store.commit(plan, loader(kernel, store, plan))
        except LiveError as error:
            assert store.state is before
            now = keys(kernel.contents())
            assert {place: now[place] for place in before_load} == before_load
            assert now.get(("mangle", "PREROUTING"), ["ACCEPT"]) == ["ACCEPT"]
            return str(error)
    return ""


def update_unknown_table(folder: str) -> None:
    """An update of a table in which the kernel has rules and the state has none."""
    with Store.open(Path(folder)) as store:
        settings = store.state.settings
        kernel = Kernel(store.state.master.family, settings)
        run([f"iptables-{settings.backend}", "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE"])
        plan = plan_unproved(store.state, read_commands("-t nat -A OUTPUT -j ACCEPT", store.state.master))
        store.commit(plan, loader(kernel, store, plan))


def drifted(folder: str, command: list[str]) -> None:
    run(command)
    with Store.open(Path(folder)) as store:
        Kernel(store.state.master.family, store.state.settings).check(store.state)


@pytest.mark.needs_kernel
@both
def test_a_refused_rule_and_drift_change_nothing(backend: str, tmp_path: Path) -> None:
    program = prefixes(20)
    plan = start_unproved(program, Settings(backend, foreign=("f2b-*",)))
    folder = str(tmp_path / "st")
    with small_namespace.Namespace() as namespace:
        load(hitables.write(program), Family.IPV4, Backend(backend), namespace)
        Store.create(Path(folder), plan.before).close()
        namespace.call(step, folder, plan)
        assert "the kernel refuses the patch" in namespace.call(refused, folder)
        with pytest.raises(Drift, match="table nat, chain POSTROUTING: 1 rule, the state has 0"):
            namespace.call(update_unknown_table, folder)
        tool = f"iptables-{backend}"
        namespace.call(drifted, folder, [tool, "-N", "f2b-sshd"])  # foreign
        with pytest.raises(Drift, match="chain INPUT: policy DROP, the state has ACCEPT"):
            namespace.call(drifted, folder, [tool, "-P", "INPUT", "DROP"])
        with pytest.raises(Drift, match=r"chain INPUT: .* rules, the state has"):
            namespace.call(drifted, folder, [tool, "-I", "INPUT", "-j", "f2b-sshd"])


@pytest.mark.needs_kernel
@both
def test_a_state_does_not_begin_with_rules_that_the_kernel_does_not_hold(
    backend: str, tmp_path: Path
) -> None:
    """There is no state to repair then."""
    rules, folder = tmp_path / "plain.rules", tmp_path / "st"
    rules.write_text(hitables.write(prefixes(20)))
    begin = [SFLGEN, "init", str(rules), "--live", "--backend", backend, "--state", str(folder)]
    with Namespace() as namespace, pytest.raises(LiveError) as refusal:
        namespace.run(begin)
    message = str(refusal.value)
    assert f"the kernel does not hold the rules of {rules}; nothing is overwritten" in message
    assert f"load them with iptables-{backend}-restore first, or leave FILE out" in message
    assert "repair" not in message and not folder.exists()


def counts_around_a_refusal(folder: str, backend: str, text: str) -> list[list[str]]:
    """The rules of table filter with their counters, before and after a patch of which the kernel takes half."""

    def counted() -> list[str]:
        saved = run([f"iptables-{backend}-save", "-c", "-t", "filter"])
        return [line for line in saved.splitlines() if line.startswith("[")]

    run([f"iptables-{backend}-restore", "-c"], text)
    run([forked(), "init", "--live", "--backend", backend, "--state", folder])
    found = [counted()]
    for commands in ("-A INPUT -s 9.9.9.9 -j DROP\n-F FORWARD\n", "-D FORWARD 5\n-R FORWARD 9 -j ACCEPT\n"):
        refused = "-t nat -I PREROUTING -m set --match-set nosuch src -j ACCEPT\n"
        with pytest.raises(LiveError, match="nothing is changed"):
            run([forked(), "apply-commands", "--live", "--state", folder, "-"], commands + refused)
        found.append(counted())
    return found


@pytest.mark.needs_kernel
@both
def test_counters_stay_when_the_kernel_refuses_the_second_table_of_a_patch(
    backend: str, tmp_path: Path
) -> None:
    rules = "".join(
        f"[{at + 1}:{at * 100}] -A FORWARD -s 10.{at}.0.0/24 -p tcp -m tcp --dport {at + 20} -j ACCEPT\n"
        for at in range(40)
    )
    text = f"*filter\n:INPUT ACCEPT [1:100]\n:FORWARD DROP [2:200]\n:OUTPUT ACCEPT [3:300]\n{rules}COMMIT\n"
    forked()
    with Namespace() as namespace:
        before, *after = namespace.call(counts_around_a_refusal, str(tmp_path / "st"), backend, text)
    assert after == [before, before] and any(line.startswith("[40:3900]") for line in before)


def begun_after_apply(folder: str, backend: str, text: str) -> tuple[list[str], int, int]:
    """What `init --live` says of rules that `hitables apply` loaded, and bytes counted before and after its way."""

    def counted() -> int:
        saved = run([f"iptables-{backend}-save", "-c", "-t", "filter"])
        assert ":INPUT DROP [7:700]" in saved
        return sum(int(count) for count in re.findall(r"^\[\d+:(\d+)\] .* -j LOG$", saved, re.MULTILINE))

    Path(f"{folder}/office.rules").write_text(text)
    begin = [forked(), "init", "--live", "--backend", backend, "--state", f"{folder}/sflgen"]
    hitables_command = f"{command_clients.folder()}/hitables"
    run([f"iptables-{backend}-restore", "-c", f"{folder}/office.rules"])
    before = counted()
    run(
        [hitables_command, "apply", f"{folder}/office.rules", "--backend", backend, "--state", f"{folder}/st"]
    )
    run([hitables_command, "confirm", "--state", f"{folder}/st"])
    told = []
    for given in ([], [f"{folder}/office.rules"]):
        with pytest.raises(LiveError) as refused:
            run([*begin[:2], *given, *begin[2:]])
        told.append(str(refused.value))
    counters, restore, release, again = re.findall("^  (.*)$", told[0], re.MULTILINE)
    assert again == "sflgen init --live ..." and "hitables persist --remove" in release
    state = f"--state {folder}/st"
    run(["sh", "-c", f"cd {folder} && {counters.replace('hitables', hitables_command)} {state} && {restore}"])
    run([hitables_command, "persist", "--remove", "--state", f"{folder}/st"])
    run(begin)
    return told, before, counted()


@pytest.mark.needs_kernel
@both
def test_rules_of_apply_are_taken_over_with_their_counters(backend: str, tmp_path: Path) -> None:
    """Both messages named the other command as the way out."""
    rules = "".join(
        f"[{at + 1}:{at * 100}] -A INPUT -s 10.{at}.0.0/24 -p tcp -m tcp --dport {at + 20} -j LOG\n"
        f"-A INPUT -s 10.{at}.0.0/24 -p tcp -m tcp --dport {at + 20} -j ACCEPT\n"
        for at in range(12)
    )
    text = f"*filter\n:INPUT DROP [7:700]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n{rules}COMMIT\n"
    forked()
    with Namespace() as namespace:
        told, before, after = namespace.call(begun_after_apply, str(tmp_path), backend, text)
    assert all("the kernel holds compiled rules (it has chains of trees: " in each for each in told)
    assert before == after == sum(range(0, 1200, 100))


def in_one_batch(folder: str, backend: str, program: str, commands: str) -> list[str]:
    """The chain "users" in the kernel after *commands*; the kernel is as the state says."""
    run([f"iptables-{backend}-restore"], program)
    run([forked(), "init", "--live", "--backend", backend, "--state", folder])
    run([forked(), "apply-commands", "--live", "--state", folder, "-"], commands)
    run([forked(), "status", "--live", "--state", folder])
    return run([f"iptables-{backend}", "-S", "users"]).splitlines()


@pytest.mark.needs_kernel
@both
def test_a_tree_may_begin_in_the_middle_of_a_batch(backend: str, tmp_path: Path) -> None:
    """It takes the places of rules that the same batch appended."""
    commands = "".join(
        f"-A users -s 10.0.{n}.0/24 -p tcp -m tcp --dport {n + 1} -j DROP\n" for n in range(250)
    )
    program = "*filter\n:INPUT ACCEPT [0:0]\n:users - [0:0]\n-A INPUT -j users\nCOMMIT\n"
    forked()
    with Namespace() as namespace:
        rules = namespace.call(in_one_batch, str(tmp_path / "st"), backend, program, commands)
    assert 10 < len(rules) < 125 and any("-g sf" in rule for rule in rules)


MISPRINTED = {
    "nft": "-A INPUT -s 10.9.1.1 -p udp -m udp --dport 5 -m udp --sport 6 -j DROP",
    "legacy": "-A INPUT -s 10.9.1.1 -p tcp ! --dport 0:65535 -j DROP",
}


def answers(folder: str, backend: str, program: str) -> list[str]:
    """Those to a rule that the tool would print as another, and to the next update."""
    run([forked(), "init", program, "--live", "--backend", backend, "--state", folder])
    with pytest.raises(LiveError, match="prints"):
        run([forked(), "apply-commands", "--live", "--state", folder, "-"], MISPRINTED[backend] + "\n")
    run([forked(), "apply-commands", "--live", "--state", folder, "-"], "-I INPUT -s 10.9.1.1 -j DROP\n")
    return run([f"iptables-{backend}", "-S"]).splitlines()


@pytest.mark.needs_kernel
@both
def test_a_rule_that_the_tool_prints_as_another_is_refused(backend: str, tmp_path: Path) -> None:
    """Once loaded, no update could be compared with the kernel."""
    rules = tmp_path / "plain.rules"
    rules.write_text(hitables.write(prefixes(20)))
    forked()
    with Namespace() as namespace:
        namespace.run([f"iptables-{backend}-restore"], rules.read_text())
        listed = namespace.call(answers, str(tmp_path / "st"), backend, str(rules))
    (added,) = [line for line in listed if "10.9.1.1/32" in line]
    assert added.endswith("-s 10.9.1.1/32 -j DROP")


def run_killed(folder: str, backend: str, program: str, moments: list[tuple[int, float]]) -> list[int]:
    """`sflgen stream --live`, killed so many answers and seconds after it began; the updates that it performed."""
    run([forked(), "init", program, "--live", "--backend", backend, "--delta", "4", "--state", folder])
    master, done = state_after_kill(Path(folder)).master, []
    for number, (answers, moment) in enumerate(moments):
        commands = [
            f"-I INPUT {1 + ban % 30} -s 10.{ban}.{number}.0/24 -p tcp --dport 5 -j DROP"
            for ban in range(200)
        ]
        answered = answered_until_killed(Path(folder), commands, answers, moment)
        after = state_after_kill(Path(folder)).master
        done.append(done_of(commands, master, after, answered))
        master = after
    return done


@pytest.mark.needs_kernel
@both
def test_state_and_kernel_agree_after_a_kill_and_the_next_start(backend: str, tmp_path: Path) -> None:
    rng = random.Random(3)
    rules = tmp_path / "plain.rules"
    rules.write_text(hitables.write(prefixes(60)))
    moments = [(rng.randrange(4), rng.random() / 10) for _ in range(4)]  # a commit takes some milliseconds
    forked()  # one server for all namespaces
    with Namespace() as namespace:
        namespace.run([f"iptables-{backend}-restore"], rules.read_text())
        done = namespace.call(run_killed, str(tmp_path / "st"), backend, str(rules), moments)
    assert len(done) == 4 and sum(done) > 4
    folder = str(tmp_path / "st")
    assert sflgen("verify", "--state", folder).exit_code == 0


def test_the_commands_change_the_state_and_print_patches(folder: str, tmp_path: Path) -> None:
    done = sflgen(
        "insert", "--state", folder, "INPUT", "1", "-s", "192.0.2.7", "!", "-p", "tcp", "-j", "DROP"
    )
    assert done.stdout == "*filter\n-I INPUT -s 192.0.2.7 ! -p tcp -j DROP\nCOMMIT\n", done.stderr
    done = sflgen("delete", "--state", folder, "INPUT", "-s", "192.0.2.7", "!", "-p", "tcp", "-j", "DROP")
    assert done.stdout == "*filter\n-D INPUT 1\nCOMMIT\n", done.stderr
    done = sflgen(
        "apply-commands", "--state", folder, "-", text="-A plain -s 10.0.0.2 -j DROP\n-P INPUT DROP\n"
    )
    assert "-P INPUT DROP" in done.stdout
    printed = sflgen("print", "--state", folder).stdout
    assert (
        ":INPUT DROP" in printed
        and "sf1" not in printed
        and "sf1" in sflgen("print", "--loaded", "--state", folder).stdout
    )
    new = tmp_path / "new.rules"
    new.write_text(printed.replace("-A plain -s 10.0.0.2 -j DROP\n", ""))
    done = sflgen("sync", "--state", folder, str(new))
    assert done.stdout == "*filter\n-D plain 2\nCOMMIT\n" and "1 update\n" in done.stderr
    sflgen(
        "insert", "--state", folder, "INPUT", "20", "-s", "10.0.0.0/9", "-j", "DROP", "--strategy", "overlay"
    )
    assert "1 update pending" in sflgen("status", "--state", folder).stdout
    assert sflgen("fold", "--state", folder).stdout
    assert "0 updates pending" in sflgen("status", "--state", folder).stdout
    assert (
        sflgen("verify", "--state", folder).stdout
        == "proved: the loaded rule set is equal to the rule list\n"
    )


def test_a_name_of_leave_that_no_chain_has_is_told(tmp_path: Path) -> None:
    rules = tmp_path / "plain.rules"
    rules.write_text(hitables.write(prefixes(20)))
    for leave, told in (("dokcer", "did you mean docker?"), ("docker", ""), ("f2b-*", ""), ("INPUT", "")):
        done = sflgen("init", str(rules), "--leave", leave, "--state", str(tmp_path / leave.strip("*")))
        assert done.exit_code == 0 and told in done.stderr
        assert ("no chain has this name" in done.stderr) == bool(told)


def test_a_stream_refuses_to_fold_what_is_not_there(folder: str) -> None:
    lines = "fold nosuch INPUT\nfold filter nosuch\nfold filter\nstatus x\nfold filter INPUT\nquit\n"
    answers = sflgen("stream", "--state", folder, text=lines).stdout.splitlines()
    assert [line for line in answers if line.startswith(("ok", "error"))] == [
        "error there is no chain INPUT in table nosuch", "error there is no chain nosuch in table filter",
        "error fold takes nothing, or a table and a chain", "error status takes nothing", answers[-1],
    ]  # fmt: skip
    assert answers[-1].startswith("ok")


def test_the_option_of_the_match_state_belongs_to_the_rule(folder: str) -> None:
    rule = ["-p", "tcp", "-m", "state", "!", "--state", "NEW", "-j", "DROP"]
    done = sflgen("insert", "INPUT", "1", *rule, "--state", folder)
    assert "-I INPUT -p tcp -m state ! --state NEW -j DROP" in done.stdout, done.stderr
    assert "-D INPUT 1" in sflgen("delete", "--state", folder, "INPUT", *rule).stdout


@pytest.mark.parametrize(("arguments", "message"), [
    (("insert", "NOPE", "-j", "DROP"), "there is no chain NOPE"),
    (("delete", "INPUT", "99"), "position 99 is out of range"),
    (("apply-commands", "/nowhere"), "/nowhere: No such file"),
    (("sync", "/nowhere"), "/nowhere: No such file"),
    (("fold", "NOPE"), "there is no chain NOPE"),
    (("init", "/nowhere"), "/nowhere: No such file"),
])  # fmt: skip
def test_an_error_has_a_message_and_exit_status_2(
    folder: str, arguments: tuple[str, ...], message: str
) -> None:
    before = sflgen("print", "--loaded", "--state", folder).stdout
    done = sflgen(*arguments, "--state", folder)
    assert done.exit_code == 2 and message in done.stderr and not done.stdout
    assert sflgen("print", "--loaded", "--state", folder).stdout == before


def test_a_locked_state_is_an_error_with_exit_status_2(folder: str) -> None:
    with Store.open(Path(folder)):
        done = sflgen("fold", "--state", folder)
    assert done.exit_code == 2 and "is in use by process" in done.stderr


def test_stream_answers_each_line_with_its_patch(folder: str) -> None:
    lines = "-I INPUT 1 -s 192.0.2.7 -j DROP\nbegin\n-A plain -s 10.0.0.2 -j DROP\n-P INPUT DROP\ncommit\n-X INPUT\nstatus\nfold\nquit\n-F plain\n"
    done = sflgen("stream", "--prove", "--state", folder, text=lines)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(
        "*filter\n-I INPUT -s 192.0.2.7 -j DROP\nCOMMIT\nok 2\n"
        "*filter\n-A plain -s 10.0.0.2 -j DROP\n-P INPUT DROP\nCOMMIT\nok 3\n"
        "error stream:1:4: INPUT is built in and cannot be deleted"
    )
    assert "23 rules, 1 pending\nok 3\n" in done.stdout and done.stdout.endswith("ok 4\n")


def test_comments_of_any_bytes_arrive_in_any_chunks(folder: str) -> None:
    command = [SFLGEN, "stream", "--state", folder]
    strict = {**os.environ, "PYTHONIOENCODING": "ascii"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=strict) as stream:
        assert stream.stdin is not None and stream.stdout is not None
        stream.stdin.write(b'-P OUTPUT DROP\n-A plain -m comment --comment "\xc3')
        stream.stdin.flush()
        answers = [stream.stdout.readline() for _ in range(4)]
        assert answers[-1] == b"ok 2\n", "with half of a character read"
        stream.stdin.write(b'\xb6" -j DROP\n-D plain -m comment --comment "\xc3\xb6" -j DROP\n')
        stream.stdin.write(b'-A plain -m comment --comment "\xff" -j DROP\n')
        stream.stdin.close()
        rest = stream.stdout.read()
    assert [line for line in rest.splitlines() if line.startswith((b"-", b"ok", b"error"))] == [
        b"-A plain -m comment --comment \xc3\xb6 -j DROP",
        b"ok 3",
        b"-D plain 2",
        b"ok 4",
        b"-A plain -m comment --comment \xff -j DROP",
        b"ok 5",
    ]
    done = subprocess.run([forked(), "print", "--state", folder], capture_output=True, env=strict, check=True)
    assert b"--comment \xff -j DROP" in done.stdout


@pytest.fixture
def listening(folder: str, tmp_path: Path) -> Iterator[Listening]:
    """A function that connects to a stream, which may open 256 files, and must exit with 0."""
    path = str(tmp_path / "socket")
    command = [
        "sh",
        "-c",
        'ulimit -n 256; exec "$0" "$@"',
        SFLGEN,
        "stream",
        "--state",
        folder,
        "--socket",
        path,
    ]

    def connected() -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        return client

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as stream:
        try:
            assert stream.stderr is not None and "listening" in stream.stderr.readline()
            yield connected
            stream.terminate()
            assert stream.wait() == 0
        finally:
            stream.kill()
    assert not Path(path).exists()


def test_stream_listens_on_a_socket(listening: Listening) -> None:
    clients = [listening() for _ in "ab"]
    for number, client in enumerate(clients):
        client.sendall(f"-I INPUT 1 -s 192.0.2.{number} -j DROP\n".encode())
        assert client.recv(4096).endswith(f"ok {number + 2}\n".encode())
    for client in clients:
        client.close()


def test_no_client_waits_for_an_open_batch_or_a_client_that_does_not_read(listening: Listening) -> None:
    leaving, silent, other = listening(), listening(), listening()
    leaving.sendall(b"begin\n-F INPUT\n-F OUT")
    count = 60_000  # more answers than are kept for a client
    asking = threading.Thread(target=silent.sendall, args=(b"status\n" * count + b"quit\n",))
    asking.start()
    for number in range(20):  # each answered while the silent client is not read
        other.sendall(f"-I INPUT 1 -s 192.0.2.{number} -j DROP\n".encode())
        assert other.recv(4096).endswith(f"ok {number + 2}\n".encode())
        if number == 3:
            leaving.close()
    with silent.makefile() as file:
        answers = file.read().splitlines()
    asking.join()
    states = [int(answer.removeprefix("ok ")) for answer in answers[1::2]]
    assert len(answers) == 2 * count and states == sorted(states) and states[-1] == 21
    other.sendall(b"begin\n-P INPUT DROP\n-P OUTPUT DROP\ncommit\n")
    assert other.recv(4096) == b"*filter\n-P INPUT DROP\n-P OUTPUT DROP\nCOMMIT\nok 22\n"
    for client in (silent, other):
        client.close()


def test_clients_beyond_the_limit_wait_until_others_leave(listening: Listening) -> None:
    clients = [listening() for _ in range(260)]
    clients[-1].sendall(b"status\n")
    for client in clients[:-1]:
        client.close()
    assert clients[-1].recv(4096).endswith(b"ok 1\n")
    clients[-1].sendall(b"-A INPUT" + b" " * (1 << 20) + b" ")
    assert clients[-1].recv(4096) == b"error the line is too long\n" and clients[-1].recv(1) == b""
    clients[-1].close()


def test_init_and_sync_warn_of_what_a_file_may_not_mean(tmp_path: Path) -> None:
    rules, folder = tmp_path / "office6.rules", str(tmp_path / "state")
    table = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -m multiprt --dports 1,2 -j DROP\nCOMMIT\n"
    rules.write_text(table)
    told = sflgen("init", str(rules), "--state", folder).stderr
    assert "sflgen: warning: " in told and "is read as IPv4, but its name has a 6" in told
    assert "did you mean multiport?" in told
    assert "did you mean multiport?" in sflgen("sync", str(rules), "--state", folder).stderr


def test_init_and_sync_refuse_a_table_that_is_given_twice(tmp_path: Path) -> None:
    rules, folder = tmp_path / "office.rules", tmp_path / "state"
    table = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -j DROP\nCOMMIT\n"
    rules.write_text(table * 2)
    refused = "drops that of line 1, with 1 rule\nNothing is changed; join the two"
    done = sflgen("init", str(rules), "--state", str(folder))
    assert (done.exit_code, refused in done.stderr, folder.exists()) == (2, True, False), done.stderr
    rules.write_text(table)
    assert sflgen("init", str(rules), "--state", str(folder)).exit_code == 0
    rules.write_text(table * 2)
    done = sflgen("sync", str(rules), "--state", str(folder))
    assert (done.exit_code, refused in done.stderr) == (2, True), done.stderr
