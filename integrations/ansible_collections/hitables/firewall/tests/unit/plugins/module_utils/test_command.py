# Copyright: the hitables developers
# SPDX-License-Identifier: Apache-2.0
"""Options become words, commands are run where rules given as text lie, and errors end the module."""

from __future__ import annotations

import json

import pytest
from ansible_collections.hitables.firewall.plugins.module_utils import command


class Ended(Exception):
    """The module has failed."""


class Module:
    """What the functions use of a module, with a real folder and real commands."""

    def __init__(self, tmpdir, **params):
        self.tmpdir, self.params = str(tmpdir), {"executable": "sh", **params}

    def fail_json(self, **result):
        raise Ended(json.dumps(result))

    def run_command(self, words, cwd):
        import subprocess

        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


def test_options_become_words():
    params = {"leave": ["docker", "f2b-*"], "force": True, "confirm": 0.0, "check": None, "state_dir": "/s"}
    words = command.option_words(command.APPLY, params)
    assert words == ["--state", "/s", "--leave", "docker", "--leave", "f2b-*", "--confirm", "0.0", "--force"]


def test_a_flag_that_is_not_wanted_and_an_empty_list_give_no_words():
    assert command.option_words(command.APPLY, {"force": False, "leave": [], "must": []}) == []


def test_rules_as_text_are_a_file_where_commands_run(tmp_path):
    module = Module(tmp_path, rules="*filter\nCOMMIT", src=None)
    name = command.rules_file(module, "src", "rules", "office")
    assert name == "office"
    assert command.run(module, ["-c", "cat office"])[1] == "*filter\nCOMMIT\n"


def test_a_file_of_the_host_keeps_its_name(tmp_path):
    module = Module(tmp_path, rules=None, src="/etc/office.rules")
    assert command.rules_file(module, "src", "rules", "rules") == "/etc/office.rules"
    assert command.rules_file(Module(tmp_path), "src", "rules", "rules") is None


def test_a_status_that_is_not_expected_ends_the_module_with_the_message(tmp_path):
    with pytest.raises(Ended, match="no such rule"):
        command.run(Module(tmp_path), ["-c", "echo no such rule >&2; exit 2"], good=(0, 1))
    assert command.run(Module(tmp_path), ["-c", "exit 1"], good=(0, 1))[0] == 1


def test_a_command_that_is_missing_is_named(tmp_path):
    with pytest.raises(Ended, match="no such command on this host"):
        command.run(Module(tmp_path, executable="hitables-which-is-missing"), ["apply"])


def test_a_document_that_is_none_is_named(tmp_path):
    with pytest.raises(Ended, match="printed no JSON"):
        command.document(Module(tmp_path), ["-c", "echo text"])


def test_a_failed_command_with_a_document_says_its_messages(tmp_path):
    document = json.dumps({"findings": [{"message": "undecided after 5 s"}, {"message": "see --timeout"}]})
    with pytest.raises(Ended) as caught:
        command.document(Module(tmp_path), ["-c", f"echo '{document}'; exit 2"], good=(0, 1))
    assert json.loads(str(caught.value))["msg"] == "undecided after 5 s; see --timeout"


def test_bytes_that_are_no_text_are_replaced_in_results(tmp_path):
    """Ansible refuses a result with others; then the task failed after it had acted."""
    found = {"text": ["z\udcfcrich", 7, None], "z\udcfc": True}
    assert command.shown(found) == {"text": ["z\ufffdrich", 7, None], "z\ufffd": True}
    module = Module(tmp_path, rules="-A INPUT -j LOG --log-prefix z\udcfcrich", src=None)
    assert command.rules_file(module, "src", "rules", "office") == "office"
    assert (tmp_path / "office").read_bytes() == b"-A INPUT -j LOG --log-prefix z\xfcrich\n"


def test_the_reason_of_what_is_undecided_is_told():
    cases = [{"table": "filter", "answer": "undecided", "reason": "the time was over"}, {"answer": "equal"}]
    assert command.reason(json.dumps({"findings": [], "cases": cases})) == "table filter: the time was over"
