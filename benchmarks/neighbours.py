"""Applies and patches beside fail2ban and a program like docker: `python -m benchmarks.neighbours`.

fail2ban bans and unbans addresses, and its jail is restarted now and then; the other program makes and
removes its chains (docker_like.py). Meanwhile two rule sets are applied in turn, and taken back at times;
afterwards `sflgen stream --live` inserts and deletes rules. (Under sflgen the jumps to the chains of the
others stay: a jump that comes or goes in a chain of the rule list is a change of that chain, which sflgen
refuses.)

It fails if any command of any program fails, if a chain or a rule of the other programs is lost, if an
address that is claimed to be banned gets a packet through (fail2ban.py), or if a packet of another address
is lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

import hitables.apply.run
import hitables.cli.apply
import hitables.start
from benchmarks.docker_like import DockerLike
from benchmarks.fail2ban import JAIL, PORT, BanProbes, Fail2ban, Package, downloaded, package
from hitables.api import check
from hitables.compare import Result
from hitables.errors import HitablesError
from hitables.ir.packet import Backend
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace, run

from . import command_line

OUTPUT = Path("docs/evaluation/neighbours.json")
SFLGEN = str(Path(sys.executable).parent / "sflgen")
RESTART = 25  # applies between two restarts of the jail
BACK = 10  # of so many applies, one is taken back
STATUS = 20  # applies between two calls of `hitables status`


def rules(number: int) -> str:
    """Two hundred rules, some of which depend on *number*, and the port of the probes."""
    listed = "".join(
        f"-A INPUT -s 10.{n}.0.0/16 -p tcp -m tcp --dport {1000 + n + number * (n % 9 == 0)} -j ACCEPT\n"
        f"-A FORWARD -d 10.{n}.0.0/16 -p udp -m udp --dport {2000 + n} -j ACCEPT\n"
        for n in range(100)
    )
    return (
        f"*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -o eth{number} -j MASQUERADE\nCOMMIT\n"
        f"*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n{listed}"
        f"-A INPUT -i lo -p udp -m udp --dport {PORT} -j ACCEPT\nCOMMIT\n"
    )


def campaign(fail2ban: Package, backend: Backend, applies: int, patches: int, seed: int) -> dict[str, Any]:
    """The figures of *applies* applies, then of *patches* patches; HitablesError if anything fails."""
    found: dict[str, Any] = {"backend": backend.value, "seed": seed}
    for phase, count in ((_applies, applies), (_patches, patches)):
        if count:
            with tempfile.TemporaryDirectory() as folder, Namespace() as namespace:
                found |= namespace.call(
                    _beside_others, phase.__name__, folder, fail2ban, backend, count, seed
                )
    return found


def _beside_others(
    phase: str, folder: str, fail2ban: Package, backend: Backend, count: int, seed: int
) -> dict[str, Any]:
    run(["ip", "link", "set", "lo", "up"])
    for number in range(2):
        Path(folder, f"{number}.rules").write_text(rules(number))
    Path(folder, "fail2ban").mkdir()
    tool = f"iptables-{backend.value}"
    run([f"{tool}-restore"], rules(0))
    is_apply = phase == _applies.__name__
    docker = DockerLike(tool, seed, restarts=is_apply)
    began = time.monotonic()
    with (
        Fail2ban(fail2ban, Path(folder, "fail2ban"), tool) as server,
        BanProbes(server) as probes,
        docker.running(),
    ):
        _first_ban(server)
        done = (_applies if is_apply else _patches)(folder, server, docker, backend, count, seed)
        time.sleep(2)
    failures = [*server.errors(), *probes.failures, *docker.failures]
    if failures:
        more = f"\n… and {len(failures) - 20} more" if len(failures) > 20 else ""
        raise HitablesError(f"{phase.strip('_')}, {backend.value}:\n" + "\n".join(failures[:20]) + more)
    return {
        phase.strip("_"): {
            **done,
            "bans": server.bans(),
            "packets_of_banned": probes.sent,
            "packets_of_others": probes.arrived,
            "commands_of_docker": docker.commands,
            "starts_of_docker": docker.starts,
            "failures": 0,  # the first one ends the run
            "seconds": round(time.monotonic() - began),
        }
    }


def _first_ban(server: Fail2ban) -> None:
    """The jail makes its chain with its first ban."""
    server.refuse("127.0.0.9")
    deadline = time.monotonic() + 60
    while "127.0.0.9" not in server.banned():
        if time.monotonic() > deadline:
            raise HitablesError("fail2ban does not ban: " + server.log.read_text())
        time.sleep(0.05)


def _check_others(server: Fail2ban, docker: DockerLike) -> None:
    failures = [*server.errors(), *docker.failures]
    if failures:
        raise HitablesError("\n".join(failures[:20]))


def _check_own_rules(text: str, backend: Backend) -> None:
    """The kernel treats every packet as *text* does, but for the chains of the others."""
    held = run([f"iptables-{backend.value}-save"])
    compared = check(text, held, backend=backend, leave=("docker", "fail2ban"), tables=("nat", "filter"))
    if compared.result is not Result.EQUAL:
        raise HitablesError(f"the kernel does not hold the rules that were applied: {compared.cases[0]}")


def _applies(
    folder: str, server: Fail2ban, docker: DockerLike, backend: Backend, count: int, seed: int
) -> dict[str, Any]:
    rng = random.Random(seed)
    state = ["--state", f"{folder}/state"]
    apply = ["hitables", "apply", "--backend", backend.value, *state, "--confirm", "0"]
    apply += ["--leave", "docker", "--leave", "fail2ban"]
    backs = restarts = 0
    for number in range(count):
        server.refuse(f"127.1.{number >> 8 & 255}.{number & 255}")
        _command([*apply, f"{folder}/{(number + 1) % 2}.rules"])
        if number and rng.randrange(BACK) == 0:
            backs += 1
            _command(["hitables", "rollback", *state])
        elif number % STATUS == STATUS - 1:
            _command(["hitables", "status", *state])
            _check_own_rules(Path(folder, f"{(number + 1) % 2}.rules").read_text(), backend)
        if number % RESTART == RESTART - 1:
            restarts += 1
            server.restart_jail()
        _check_others(server, docker)
    return {"applies": count, "rollbacks": backs, "restarts_of_the_jail": restarts}


def _command(words: list[str]) -> None:
    """Run a command of hitables in a fork of this process, which has imported it; it must succeed."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            _become(words, output.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
            raise HitablesError(f"{' '.join(words)}: exit status {status}\n{text}")


def _become(words: list[str], output: int) -> NoReturn:
    status: object = 1
    try:
        for number in (1, 2):
            os.dup2(output, number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        sys.argv = words
        hitables.start.hitables()
    except SystemExit as end:
        status = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 0 if status is None else 1)


def _patches(
    folder: str, server: Fail2ban, docker: DockerLike, backend: Backend, count: int, seed: int
) -> dict[str, Any]:
    rng = random.Random(seed)
    state = ["--state", f"{folder}/sflgen"]
    live = ["--live", "--backend", backend.value, "--leave", "DOCKER*", "--leave", "f2b-*"]
    run([SFLGEN, "init", *live, *state])
    inserted: list[str] = []
    stream = subprocess.Popen(
        [SFLGEN, "stream", "--live", *state], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert stream.stdin is not None and stream.stdout is not None
    with stream:
        for number in range(count):
            server.refuse(f"127.2.{number >> 8 & 255}.{number & 255}")
            if inserted and rng.random() < 0.4:
                command = f"-D INPUT {inserted.pop(rng.randrange(len(inserted)))}"
            else:
                net = f"10.{rng.randrange(100)}.{number & 255}.0/24"
                rule = f"-s {net} -p tcp -m tcp --dport {number + 1} -j DROP"
                inserted.append(rule)
                command = f"-I INPUT {rng.randint(1, 90)} {rule}"
            stream.stdin.write(command + "\n")
            stream.stdin.flush()
            _await(stream.stdout.readline, command)
            _check_others(server, docker)
            time.sleep(0.05)
        stream.stdin.write("quit\n")
        stream.stdin.close()
        if stream.wait():
            raise HitablesError(f"sflgen stream: exit status {stream.returncode}")
    run([SFLGEN, "status", "--live", *state])
    run([SFLGEN, "verify", *state])
    return {"patches": count}


def _await(readline: Any, command: str) -> None:
    """Read the answer to *command*, which must be `ok`."""
    while not (line := readline()).startswith("ok "):
        if not line or line.startswith("error"):
            raise HitablesError(f"sflgen stream, {command}: {line or 'it has ended'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--applies", type=int, default=1000, help="Half of them on either backend.")
    parser.add_argument("--patches", type=int, default=1000, help="Half of them on either backend.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help=f"Write the figures to this file ({OUTPUT}).")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fail2ban = package() or downloaded(Path(folder))
        results = []
        for backend in Backend:
            results.append(campaign(fail2ban, backend, args.applies // 2, args.patches // 2, args.seed))
            print(json.dumps(results[-1]), flush=True)
    if args.json:
        data = {"machine": machine(), "jail": JAIL, "backends": results}
        args.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    command_line.run(main)
