# Copyright: the hitables developers
# SPDX-License-Identifier: Apache-2.0
"""Loads the rules by the module of the same name, and confirms them over a new connection.

The way back does not depend on this program: a process of the host takes unconfirmed rules back.
"""

from __future__ import annotations

import time

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

PAUSE = 2.0  # seconds between two tries to connect


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        result.update(
            self._execute_module(
                module_name="hitables.firewall.apply", module_args=arguments, task_vars=task_vars
            )
        )
        waits = not result.get("failed") and result.get("result") == "waiting"
        if waits and boolean(arguments.get("reconnect", True)):
            self._confirm(arguments, result, task_vars)
        return result

    def _confirm(self, arguments, result, task_vars):
        """Confirm the rules over a new connection, as long as they wait."""
        number = result["waiting"]["number"]
        deadline = time.monotonic() + float(arguments.get("confirm", 60))
        asked = {name: arguments[name] for name in ("state_dir", "executable") if name in arguments}
        while True:
            try:
                self._reset()
                answer = self._execute_module(
                    module_name="hitables.firewall.confirm",
                    module_args={"number": number, **asked},
                    task_vars=task_vars,
                )
            except (AnsibleConnectionFailure, AnsibleError) as error:
                answer = {"failed": True, "unreachable": True, "msg": str(error)}
            if not answer.get("failed"):
                result.update(result="confirmed", confirmed=answer["confirmed"], waiting=None)
                return
            if not answer.get("unreachable") or time.monotonic() >= deadline:
                break
            time.sleep(PAUSE)
        result.update(
            failed=True,
            msg=f"rule set {number} was loaded and could not be confirmed over a new connection, so the host "
            f"takes it back: {answer.get('msg', 'no message')}",
        )

    def _reset(self):
        """Close the connection, so that the next module opens a new one."""
        reset = getattr(self._connection, "reset", None)
        if reset is not None:
            reset()
