#!/usr/bin/python
# Copyright: the hitables developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: compile
short_description: Compile a rule set of iptables into trees of chains
description:
  - Compiles a rule set, proves the result equal to it, and writes the result to a file.
  - Nothing is loaded. M(hitables.firewall.apply) compiles and loads.
  - The file changes only if the result does.
version_added: 0.1.0
author: The hitables developers (@hitables)
options:
  src:
    description: The rule set, a file of the host in the format of iptables-save.
    type: path
  rules:
    description: The rule set as text, instead of O(src).
    type: str
  dest:
    description:
      - The file that the compiled rule set is written to.
      - If it is a symbolic link, the file that it leads to gets the rules, owner and mode; the link stays.
    type: path
    required: true
  backend:
    description: The variant of iptables that the result is made for.
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
  equivalence:
    description: Keep every rule, or only verdicts.
    type: str
    choices: [full, verdict]
    default: full
  effort:
    description: How hard to search for the cheapest trees.
    type: str
    choices: [fast, normal, best]
    default: normal
  uniform:
    description: Ignore counters in the rule set, which change with each packet and would change the result.
    type: bool
    default: true
  timeout:
    description: Seconds after which the proof is given up; then nothing is written.
    type: float
  executable:
    description: The command hitables, if it is not on the search path.
    type: str
    default: hitables
extends_documentation_fragment:
  - ansible.builtin.files
attributes:
  check_mode:
    support: full
    description: The rules are compiled and proved, and nothing is written.
  diff_mode:
    support: full
    description: The difference of the compiled texts.
"""

EXAMPLES = r"""
- name: Compile the rules of the gateway
  hitables.firewall.compile:
    src: /etc/firewall/office.rules
    dest: /etc/firewall/office.compiled
    leave: [docker, fail2ban]
    mode: '0600'
"""

RETURN = r"""
dest:
  description: The file with the compiled rule set.
  returned: success
  type: str
rules:
  description: How many rules the compiled rule set has.
  returned: success
  type: int
"""

import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hitables.firewall.plugins.module_utils.command import (
    COMPILE,
    EXECUTABLE,
    LEAVE,
    option_words,
    rules_file,
    run,
    shown,
)

ARGUMENTS = dict(
    src=dict(type="path"),
    rules=dict(type="str"),
    dest=dict(type="path", required=True),
    backend=dict(type="str", choices=["any", "legacy", "nft"], default="any"),
    family=dict(type="str", choices=["4", "6"]),
    leave=LEAVE,
    equivalence=dict(type="str", choices=["full", "verdict"], default="full"),
    effort=dict(type="str", choices=["fast", "normal", "best"], default="normal"),
    uniform=dict(type="bool", default=True),
    timeout=dict(type="float"),
    executable=EXECUTABLE,
)


def read(path):
    """The text of a file with its line ends, and with the bytes that are no UTF-8; "" if there is no file."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def main():
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        add_file_common_args=True,
        supports_check_mode=True,
        mutually_exclusive=[("src", "rules")],
        required_one_of=[("src", "rules")],
    )
    params = module.params
    params["dest"] = os.path.abspath(params["dest"])
    target = os.path.realpath(params["dest"])  # as hitables compile -o does
    source = rules_file(module, "src", "rules", "rules")
    given = os.path.join(module.tmpdir, source)
    if os.path.exists(given) and os.path.exists(target) and os.path.samefile(given, target):
        module.fail_json(msg=f"dest is the rule set that is compiled, {source}")
    if os.path.exists(target) and not os.path.isfile(target):  # a device would be replaced by a file
        module.fail_json(msg=f"dest is a folder or a device, {params['dest']}; name a file")
    if not os.path.isdir(os.path.dirname(target)):
        module.fail_json(msg=f"the folder of dest does not exist: {os.path.dirname(target)}")
    made = os.path.join(module.tmpdir, "compiled")
    run(module, ["compile", source, "-o", made, "--quiet"] + option_words(COMPILE, params))
    before, after = read(target), read(made)
    changed = before != after
    result = {"dest": params["dest"], "rules": len(re.findall("^(?:\\[.*\\] )?-A ", after, re.MULTILINE))}
    if module._diff:
        result["diff"] = {
            "before": shown(before),
            "after": shown(after),
            "before_header": params["dest"],
            "after_header": params["dest"],
        }
    if changed and not module.check_mode:
        module.atomic_move(made, target)
    if os.path.exists(target):
        attributes = module.load_file_common_arguments(params, target)
        changed = module.set_fs_attributes_if_different(attributes, changed)
    module.exit_json(changed=changed, **result)


if __name__ == "__main__":
    main()
