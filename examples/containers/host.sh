#!/bin/bash
# Prints the rules of a host with containers, as docker makes them, with rules of the host in front.
# usage: host.sh | iptables-restore
echo "*nat"
echo ":PREROUTING ACCEPT [0:0]"
echo ":POSTROUTING ACCEPT [0:0]"
echo ":DOCKER - [0:0]"
echo "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER"
echo "-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE"
echo "-A DOCKER -i docker0 -j RETURN"
echo "COMMIT"
echo "*filter"
echo ":FORWARD DROP [0:0]"
echo ":DOCKER - [0:0]"
echo ":DOCKER-ISOLATION-STAGE-1 - [0:0]"
echo ":DOCKER-USER - [0:0]"
echo "-A FORWARD -j DOCKER-USER"
echo "-A FORWARD -j DOCKER-ISOLATION-STAGE-1"
echo "-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
echo "-A FORWARD -o docker0 -j DOCKER"
for office in {1..60}; do
    echo "-A FORWARD -s 10.$office.0.0/16 -d 10.200.$office.0/24 -p tcp -m tcp --dport $((7000 + office)) -j ACCEPT"
done
echo "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT"
echo "-A DOCKER-ISOLATION-STAGE-1 -j RETURN"
echo "-A DOCKER-USER -j RETURN"
echo "COMMIT"
