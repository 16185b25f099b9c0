#!/usr/bin/python
# Copyright: the hitables developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: check
short_description: Prove that two rule sets treat every packet the same
description:
  - Proves that a rule set treats every packet as another one does, or shows a packet that it does not.
  - Without O(after) and O(after_rules) the rules that the kernel of the host holds are compared.
version_added: 0.1.0
author: The hitables developers (@hitables)
options:
  before:
    description: The reviewed rule set, a file of the host in the format of iptables-save.
    type: path
  before_rules:
    description: The reviewed rule set as text, instead of O(before).
    type: str
  after:
    description: The rule set that is compared with it, a file of the host.
    type: path
  after_rules:
    description: The rule set that is compared with it as text, instead of O(after).
    type: str
  differ:
    description: Whether the task fails if the rule sets differ, or reports it.
    type: str
    choices: [fail, report]
    default: fail
  backend:
    description:
      - Read the rules as this variant of iptables does; V(any) requires equality in both.
      - If the kernel is read, its rules are those of this variant; V(any) is that of the command iptables.
    type: str
    choices: [any, legacy, nft]
    default: any
  family:
    description: Read the rules as IPv4 or IPv6; by default this is guessed from them.
    type: str
    choices: ['4', '6']
  leave:
    description:
      - Patterns of chains of other programs, or the name of a program.
      - >-
        These are docker, fail2ban, kube, calico, cilium, flannel, cni, podman, libvirt, proxmox, ufw,
        firewalld, networkmanager, crowdsec, miniupnpd, sshguard, tailscale, psad, fwknop,
        sshuttle, neutron, opensnitch and ocserv.
    type: list
    elements: str
    default: []
  table:
    description: Compare these tables only.
    type: list
    elements: str
    default: []
  chain:
    description: Compare these chains only.
    type: list
    elements: str
    default: []
  equivalence:
    description: Compare verdicts, logs and counters, or verdicts only.
    type: str
    choices: [full, verdict]
    default: full
  malformed:
    description: Whether the second rule set may drop packets with cut-off headers.
    type: str
    choices: [stricter, exact]
    default: stricter
  timeout:
    description: Seconds after which the comparison is given up, and the task fails.
    type: float
  executable:
    description: The command hitables, if it is not on the search path.
    type: str
    default: hitables
attributes:
  check_mode:
    support: full
    description: The task changes nothing.
  diff_mode:
    support: none
    description: The findings are returned in any mode.
"""

EXAMPLES = r"""
- name: The kernel decides as the reviewed rules
  hitables.firewall.check:
    before_rules: "{{ lookup('ansible.builtin.file', 'office.rules') }}"
    leave: [docker]

- name: The generated rules decide as the reviewed ones
  hitables.firewall.check:
    before: /etc/firewall/reviewed.rules
    after: /etc/firewall/generated.rules
    differ: report
  register: comparison
"""

RETURN = r"""
equal:
  description: Whether the rule sets were proved to be equal.
  returned: success
  type: bool
answer:
  description: The answer of the command.
  returned: success
  type: str
findings:
  description: The differences, each with a packet, as in the document of C(hitables check --format json).
  returned: success
  type: list
  elements: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hitables.firewall.plugins.module_utils.command import (
    CHECK,
    EXECUTABLE,
    LEAVE,
    document,
    option_words,
    rules_file,
    run,
)

ARGUMENTS = dict(
    before=dict(type="path"),
    before_rules=dict(type="str"),
    after=dict(type="path"),
    after_rules=dict(type="str"),
    differ=dict(type="str", choices=["fail", "report"], default="fail"),
    backend=dict(type="str", choices=["any", "legacy", "nft"], default="any"),
    family=dict(type="str", choices=["4", "6"]),
    leave=LEAVE,
    table=dict(type="list", elements="str", default=[]),
    chain=dict(type="list", elements="str", default=[]),
    equivalence=dict(type="str", choices=["full", "verdict"], default="full"),
    malformed=dict(type="str", choices=["stricter", "exact"], default="stricter"),
    timeout=dict(type="float"),
    executable=EXECUTABLE,
)


def kernel_rules(module, other):
    """A file with the rules that the kernel holds, of the family of the rule set *other*."""
    params = module.params
    path = os.path.join(module.tmpdir, "kernel")
    family = params["family"] or str(document(module, ["stats", other])[1]["family"])
    words = ["save", "-o", path, "--family", family]
    if params["backend"] != "any":
        words += ["--backend", params["backend"]]
    run(module, words)
    return path


def main():
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
        mutually_exclusive=[("before", "before_rules"), ("after", "after_rules")],
        required_one_of=[("before", "before_rules")],
    )
    params = module.params
    before = rules_file(module, "before", "before_rules", "before")
    after = rules_file(module, "after", "after_rules", "after") or kernel_rules(module, before)
    status, found = document(module, ["check", before, after] + option_words(CHECK, params), good=(0, 1))
    result = {"equal": status == 0, "answer": found["answer"], "findings": found["findings"]}
    if status and params["differ"] == "fail":
        messages = [each["message"] + "; packet: " + each.get("packet", "none") for each in found["findings"]]
        module.fail_json(msg="the rule sets differ: " + "; ".join(messages[:5]), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
