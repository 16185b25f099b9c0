#!/usr/bin/python
# Copyright: the hitables developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: apply
short_description: Load a compiled rule set, and keep it if a new connection reaches the host
description:
  - Compiles rule sets, proves them, and loads them all at once, with the counters of the old rules.
  - Then the connection is closed, and a new one confirms the rules. If there is none within O(confirm) s,
    a process of the host loads the old rules again, so a host that locks the controller out comes back.
  - If the kernel holds the rules already, nothing is done.
version_added: 0.1.0
author: The hitables developers (@hitables)
options:
  src:
    description: The rule set of one family, a file of the host in the format of iptables-save.
    type: path
  rules:
    description: The rule set as text, instead of O(src); in check mode it needs no file on the host.
    type: str
  src6:
    description: The rule set of the other family; without O(src) and O(rules) it is IPv6.
    type: path
  rules6:
    description: The rule set of the other family as text, instead of O(src6).
    type: str
  state_dir:
    description: The folder with the rule sets that were loaded.
    type: path
    default: /var/lib/hitables
  backend:
    description:
      - The variant of iptables that loads the rules.
      - V(auto) is that of the rules in force, or else that of the command iptables.
    type: str
    choices: [auto, legacy, nft]
    default: auto
  family:
    description: The IP version of O(src) or O(rules); by default it is guessed from the text.
    type: str
    choices: ["4", "6"]
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
  compile:
    description: Whether the rules are compiled, or loaded as they are.
    type: bool
    default: true
  confirm:
    description: Seconds within which the rules must be confirmed; V(0) confirms them at once.
    type: float
    default: 60
  reconnect:
    description:
      - Whether a new connection confirms the rules.
      - Otherwise they wait, until a task with M(hitables.firewall.confirm) confirms them.
    type: bool
    default: true
  check:
    description: A command of the host that decides; if it succeeds, the rules are confirmed, else taken back.
    type: str
  must:
    description: Packets that the rules must let pass, as for C(hitables trace); else nothing is loaded.
    type: list
    elements: str
    default: []
  force:
    description: Load rules that do not let the session of the controller or packets of O(must) pass.
    type: bool
    default: false
  timeout:
    description: Seconds after which the proof is given up; then nothing is loaded.
    type: float
  executable:
    description: The command hitables, if it is not on the search path.
    type: str
    default: hitables
attributes:
  check_mode:
    support: full
    description: The rules are compiled, proved, tried, and compared with those of the kernel.
  diff_mode:
    support: full
    description: The packets that the new rules treat otherwise.
seealso:
  - module: hitables.firewall.confirm
"""

EXAMPLES = r"""
- name: Load the firewall
  hitables.firewall.apply:
    rules: "{{ lookup('ansible.builtin.template', 'office.rules.j2') }}"
    rules6: "{{ lookup('ansible.builtin.template', 'office6.rules.j2') }}"
    leave: [docker, fail2ban]
    must:
      - chain=INPUT in=eth0 src=192.0.2.1 dst=192.0.2.10 proto=tcp sport=40000 dport=22

- name: Load the firewall, and confirm it after checks
  hitables.firewall.apply:
    src: /etc/firewall/office.rules
    confirm: 120
    reconnect: false

- name: The web server answers
  ansible.builtin.uri:
    url: https://www.example.com/
  delegate_to: localhost

- name: Keep the firewall
  hitables.firewall.confirm:
"""

RETURN = r"""
result:
  description:
    - What was done. C(recorded) if the kernel had these rules already, and the state directory did not;
      C(would change) and C(would record) in check mode.
  returned: success
  type: str
  choices: [nothing to do, would change, would record, recorded, waiting, confirmed]
confirmed:
  description: The number of the rule set that is confirmed.
  returned: success
  type: int
waiting:
  description: The rule set that waits for its confirmation, with the time at which it is taken back.
  returned: success
  type: dict
families:
  description: What changes in each family, as in the document of C(hitables apply --format json).
  returned: success
  type: list
  elements: dict
findings:
  description: The packets that are treated otherwise.
  returned: success
  type: list
  elements: dict
messages:
  description: Messages of the command.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hitables.firewall.plugins.module_utils.command import (
    APPLY,
    EXECUTABLE,
    LEAVE,
    STATE,
    document,
    option_words,
    rules_file,
)

ARGUMENTS = dict(
    src=dict(type="path"),
    rules=dict(type="str"),
    src6=dict(type="path"),
    rules6=dict(type="str"),
    state_dir=STATE,
    backend=dict(type="str", choices=["auto", "legacy", "nft"], default="auto"),
    family=dict(type="str", choices=["4", "6"]),
    leave=LEAVE,
    compile=dict(type="bool", default=True),
    confirm=dict(type="float", default=60),
    reconnect=dict(type="bool", default=True),
    check=dict(type="str"),
    must=dict(type="list", elements="str", default=[]),
    force=dict(type="bool", default=False),
    timeout=dict(type="float"),
    executable=EXECUTABLE,
)


def main():
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
        mutually_exclusive=[("src", "rules"), ("src6", "rules6")],
        required_one_of=[("src", "rules", "src6", "rules6")],
    )
    params = module.params
    files = [
        rules_file(module, "src", "rules", "rules"),
        rules_file(module, "src6", "rules6", "rules6"),
    ]
    if files[0] is None:
        params["family"] = "6"
    words = ["apply"] + [each for each in files if each is not None] + option_words(APPLY, params)
    if not params["compile"]:
        words.append("--no-compile")
    if module.check_mode:
        words.append("--dry-run")
    _status, done = document(module, words, good=(0, 1))
    names = ("result", "confirmed", "waiting", "families", "findings", "messages")
    result = {name: done[name] for name in names}
    if module._diff:
        result["diff"] = {"prepared": "".join(each["text"] + "\n" for each in done["families"])}
    module.exit_json(changed=done["result"] != "nothing to do", **result)


if __name__ == "__main__":
    main()
