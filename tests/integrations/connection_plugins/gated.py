"""A local connection behind a port: it is opened by a TCP connection to 127.0.0.1:2222, as one of ssh would be."""

from __future__ import annotations

import socket

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as Local

DOCUMENTATION = """
name: gated
short_description: local commands, if a port answers
description: Local commands, if a port answers.
extends_documentation_fragment: [connection_pipelining]
"""


class Connection(Local):
    transport = "gated"

    def _connect(self):
        if not self._connected:
            try:
                socket.create_connection(("127.0.0.1", 2222), timeout=0.5).close()
            except OSError as error:
                raise AnsibleConnectionFailure(f"port 2222 does not answer: {error}") from error
        return super()._connect()

    def reset(self):
        self._connected = False
