"""Numbers as the tools read them: octal behind a 0, hexadecimal, decimal; what the kernel then holds says which."""

from __future__ import annotations

import pytest

from hitables import read
from hitables.errors import LiveError, ParseError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import Namespace, load, save
from hitables.verify import exact
from hitables.verify.question import Equal, Question

pytestmark = [pytest.mark.needs_kernel, pytest.mark.usefixtures("small_namespaces")]

# What stands in the rule, and what the tools save.
SPELLINGS = {
    "-s 10.010.1.1": "-s 10.8.1.1/32", "-s 0x0a.1.1.1": "-s 10.1.1.1/32", "-s 010": "-s 8.0.0.0/32",
    "-s 10.0.0.0/010": "-s 10.0.0.0/8", "-s 10.0.0.0/0x8": "-s 10.0.0.0/8", "-s 10.1.1.1/032": "-s 10.1.1.0/26",
    "-s 10.0.0.0/0377.0.0.0": "-s 10.0.0.0/8", "-p 010": "-p egp", "-p 0x6": "-p tcp", "-p 0X11": "-p udp",
    "-p tcp --dport 010": "-p tcp -m tcp --dport 8", "-p tcp --dport 0x10:0x20": "-p tcp -m tcp --dport 16:32",
    "-p sctp --sport 010:020": "-p sctp -m sctp --sport 8:16", "-p dccp --dport 010:020": "-p dccp -m dccp --dport 10:20",
    "-p udp --sport 010": "-p udp -m udp --sport 10", "-p udp --sport 010:": "-p udp -m udp --sport 10:65535",
    "-p udp --sport :010": "-p udp -m udp --sport 0:10",
    "-p tcp -m multiport --dports 010:020,030": "-p tcp -m multiport --dports 8:16,24",
    "-m iprange --src-range 0x0a.1.1.1-0x0b.010": "-m iprange --src-range 10.1.1.1-11.8.0.0",
    "-p icmp --icmp-type 010/01": "-p icmp -m icmp --icmp-type 8/1",
}  # fmt: skip
REFUSED = ["-s 10.08.1.1", "-s 10.256.1.1", "-s 10.0.0.0/041", "-s 10.0.0.0/33", "-p 08", "-p 0x100", "-p 256",
           "-p tcp --dport 080", "-p tcp --dport 0x10000", "-p udp --dport 0x10", "-p dccp --dport 0x10"]  # fmt: skip


def table(rule: str) -> str:
    return f"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT {rule} -j DROP\nCOMMIT\n"


def saved(text: str, backend: Backend) -> str:
    with Namespace() as namespace:
        load(text, Family.IPV4, backend, namespace)
        return save(Family.IPV4, backend, namespace)


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize(("written", "meant"), SPELLINGS.items())
def test_a_number_means_what_the_tools_take_it_for(written: str, meant: str, backend: Backend) -> None:
    printed = saved(table(written), backend).replace("-p 8 ", "-p egp ")  # 1.8.11 names few protocols
    assert f"-A INPUT {meant} -j DROP" in printed
    assert isinstance(exact.check(read(table(written)), read(table(meant)), Question()), Equal)


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("written", REFUSED)
def test_a_number_that_the_tools_refuse_is_refused(written: str, backend: Backend) -> None:
    with pytest.raises(LiveError):
        saved(table(written), backend)
    with pytest.raises(ParseError):
        read(table(written))
