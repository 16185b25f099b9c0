#!/bin/bash
# Changes the rules as docker does when a container that publishes a port starts or stops.
# usage: container.sh up|down ADDRESS PORT, where $IPTABLES names the tool
set -euo pipefail
iptables=${IPTABLES:-iptables}
case $1 in up) do=-A ;; down) do=-D ;; *) exit 2 ;; esac
$iptables $do DOCKER -d "$2/32" ! -i docker0 -o docker0 -p tcp -m tcp --dport "$3" -j ACCEPT
$iptables -t nat $do DOCKER ! -i docker0 -p tcp -m tcp --dport "$3" -j DNAT --to-destination "$2:$3"
