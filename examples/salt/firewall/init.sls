# Salt: the firewall of a minion.  The rules stay if the minion still reaches its master, else the minion takes
# them back by itself.  The command hitables and the file office.rules are the only needs.
#
#   salt 'gateway*' state.apply firewall
#
# With test=True nothing is loaded; "hitables apply FILE --dry-run" on a minion shows what would change.

/etc/hitables/office.rules:
  file.managed:
    - source: salt://firewall/office.rules
    - mode: '0600'
    - makedirs: True

# A new connection to the publisher of the master, which is open for each minion.
/etc/hitables/reaches-master:
  file.managed:
    - mode: '0700'
    - makedirs: True
    - contents: |
        #!/bin/bash
        exec timeout 10 bash -c 'exec 3<>/dev/tcp/{{ opts.get("master", "salt") }}/{{ opts.get("publish_port", 4505) }}'

load the firewall:
  cmd.run:
    - name: hitables apply /etc/hitables/office.rules --check /etc/hitables/reaches-master --confirm 60
    - unless: hitables apply /etc/hitables/office.rules --dry-run
    - require:
      - file: /etc/hitables/office.rules
      - file: /etc/hitables/reaches-master

load it at every boot:
  cmd.run:
    - name: hitables persist
    - creates: /etc/systemd/system/hitables.service
    - require:
      - cmd: load the firewall
