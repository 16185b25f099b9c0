# Copyright: the hitables developers
# SPDX-License-Identifier: Apache-2.0
"""Command lines of hitables from the options of a module, and the runs of them.

Each table maps an option of a module to the option of the command that it becomes.  A value that is a list
becomes the option once for each item; a flag is given if it is true.
"""

from __future__ import annotations

import json
import os
import shutil

APPLY = {
    "state_dir": "--state",
    "backend": "--backend",
    "family": "--family",
    "leave": "--leave",
    "confirm": "--confirm",
    "check": "--check",
    "must": "--must",
    "force": "--force",
    "timeout": "--timeout",
}
COMPILE = {
    "backend": "--backend",
    "family": "--family",
    "leave": "--leave",
    "equivalence": "--equivalence",
    "effort": "--effort",
    "uniform": "--uniform",
    "timeout": "--timeout",
}
CHECK = {
    "backend": "--backend",
    "family": "--family",
    "leave": "--leave",
    "table": "--table",
    "chain": "--chain",
    "equivalence": "--equivalence",
    "malformed": "--malformed",
    "timeout": "--timeout",
}

# What several modules have.
EXECUTABLE = {"type": "str", "default": "hitables"}
STATE = {"type": "path", "default": "/var/lib/hitables"}
LEAVE = {"type": "list", "elements": "str", "default": []}


def option_words(table, params):
    """The words of a command line for the *params* that *table* names."""
    words = []
    for name, option in table.items():
        value = params.get(name)
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
            continue
        for each in value if isinstance(value, list) else [value]:
            words += [option, str(each)]
    return words


def executable(module):
    """The path of the command; the module ends if there is none."""
    name = module.params["executable"]
    path = shutil.which(name)
    if path is None:
        module.fail_json(msg=f"{name}: no such command on this host; install hitables, or set executable")
    return path


def run(module, words, good=(0,)):
    """Run a command of hitables; its exit status, output and messages.  Other statuses end the module."""
    # The histories and messages of hitables have the names of files, so rules given as text get short ones.
    status, output, messages = module.run_command([executable(module)] + words, cwd=module.tmpdir)
    if status not in good:
        module.fail_json(
            msg=shown(messages.strip() or reason(output) or f"hitables {words[0]}: exit status {status}"),
            rc=status,
            cmd=shown(["hitables"] + words),
        )
    return status, output, messages


def reason(output):
    """What the output of a failed command says: the messages of its document, or the text."""
    try:
        told = json.loads(output)
        messages = [each["message"] for each in told["findings"]]
        undecided = [each for each in told.get("cases", []) if each.get("answer") == "undecided"]
        messages += [f"table {each['table']}: {each['reason']}" for each in undecided]
        return "; ".join(dict.fromkeys(messages))
    except (ValueError, KeyError, TypeError):
        return output.strip()


def shown(value):
    """*value*, as a result of a module may have it: bytes that are not UTF-8 become replacement characters.

    Rules may have such bytes, and Ansible refuses a result that does.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {shown(key): shown(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shown(each) for each in value]
    return value


def document(module, words, good=(0,)):
    """Run a command with --format json; its exit status and its document."""
    status, output, messages = run(module, words + ["--format", "json"], good)
    try:
        return status, shown(json.loads(output))
    except ValueError:
        module.fail_json(
            msg="hitables printed no JSON; is it the version of this collection?",
            stdout=shown(output),
            stderr=shown(messages),
        )


def rules_file(module, source, text, name):
    """The name of a rule set for commands that `run` runs: a file of the host, or *name*, which has the text.

    None if the module was given neither the option *source* nor the option *text*.
    """
    given = module.params.get(text)
    if module.params.get(source) is not None:
        return os.path.abspath(module.params[source])
    if given is None:
        return None
    with open(os.path.join(module.tmpdir, name), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(given if given.endswith("\n") else given + "\n")
    return name
