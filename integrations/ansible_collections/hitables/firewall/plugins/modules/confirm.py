#!/usr/bin/python
# Copyright: the hitables developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: confirm
short_description: Keep the rules that apply has loaded
description:
  - Confirms the rule set that waits, so that it stays, and so that each boot loads it.
  - If none waits, nothing is done.
  - A folder O(state_dir) that does not exist is an error, except in check mode, where no task has made it.
version_added: 0.1.0
author: The hitables developers (@hitables)
options:
  number:
    description: The number of the rule set that shall be confirmed; the task fails if it was taken back.
    type: int
  state_dir:
    description: The folder with the rule sets that were loaded.
    type: path
    default: /var/lib/hitables
  executable:
    description: The command hitables, if it is not on the search path.
    type: str
    default: hitables
attributes:
  check_mode:
    support: full
    description: Nothing is confirmed. Rules that a task before would have loaded do not wait.
  diff_mode:
    support: none
    description: The rules do not change.
seealso:
  - module: hitables.firewall.apply
"""

EXAMPLES = r"""
- name: Keep the firewall
  hitables.firewall.confirm:
"""

RETURN = r"""
confirmed:
  description: The number of the rule set that is confirmed; 0 if there is none.
  returned: success
  type: int
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hitables.firewall.plugins.module_utils.command import (
    EXECUTABLE,
    STATE,
    document,
    run,
)

ARGUMENTS = dict(number=dict(type="int"), state_dir=STATE, executable=EXECUTABLE)


def history_of(module, state):
    """The document of hitables history; empty on a new host in check mode, where apply made no folder."""
    if module.check_mode and not os.path.exists(module.params["state_dir"]):
        return {"waiting": None, "confirmed": 0, "rule_sets": []}
    return document(module, ["history"] + state)[1]


def main():
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    number, state = module.params["number"], ["--state", module.params["state_dir"]]
    history = history_of(module, state)
    waiting = history["waiting"]["number"] if history["waiting"] else None
    if number is not None and number not in (waiting, history["confirmed"]):
        ended = [each["status"] for each in history["rule_sets"] if each["number"] == number]
        module.fail_json(msg=f"rule set {number} cannot be confirmed: {(ended or ['there is none'])[0]}")
    if waiting is None or waiting != (number or waiting):
        module.exit_json(changed=False, confirmed=history["confirmed"])
    if not module.check_mode:
        run(module, ["confirm"] + state)
    module.exit_json(changed=True, confirmed=waiting)


if __name__ == "__main__":
    main()
