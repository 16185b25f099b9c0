#!/bin/bash
# Prints the rules of a host with fail2ban: forty services for some networks, and the chain of one jail.
# usage: host.sh | iptables-restore
echo "*filter"
echo ":INPUT DROP [0:0]"
echo ":f2b-sshd - [0:0]"
echo "-A INPUT -i lo -p tcp -j ACCEPT"
echo "-A INPUT -p tcp -m multiport --dports 22 -j f2b-sshd"
for service in {1..40}; do
    echo "-A INPUT -s 10.$service.0.0/16 -p tcp -m tcp --dport $((8000 + service)) -j ACCEPT"
    echo "-A INPUT -d 127.0.$service.0/24 -p udp -m udp --dport $((5000 + service)) -j ACCEPT"
done
echo "-A INPUT -p tcp -m tcp --dport 22 -m limit --limit 10/min -j ACCEPT"
echo "-A f2b-sshd -j RETURN"
echo "COMMIT"
