# `make help` lists the targets.  Everything runs in .venv/, which `make setup` builds.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
export PATH := $(CURDIR)/.venv/bin:$(PATH):/usr/sbin:/sbin

PYTEST_FLAGS ?=
FLAKY_FLAGS ?=
CORPUS_FLAGS ?=
BENCH_FLAGS ?=
C_SOURCES := $(wildcard hitables/core/c/*/*.c benchmarks/*.c)
C_INCLUDES := -Ihitables/core/include $(addprefix -I,$(wildcard hitables/core/c/*))

.PHONY: $(shell sed -nE 's/^([a-z][a-z0-9-]*):.*/\1/p' $(lastword $(MAKEFILE_LIST)))

help: ## this list
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

setup: .venv/ready ## build .venv/ with the package in it (editable)

.venv/ready: tools/setup pyproject.toml meson.build hitables/core/meson.build
	@tools/setup

test: setup ## run the tests
	@python -m pytest -q -n 4 --dist worksteal $(PYTEST_FLAGS)

deep: setup ## the tests with ten times as many examples of each law, other ones in each run
	@python -m pytest -q -n 3 --dist worksteal --hypothesis-profile=deep -o faulthandler_timeout=0 --timeout=0 $(PYTEST_FLAGS)

flaky: setup ## the tests again and again, in other orders, beside load; FLAKY_FLAGS="--runs 20 --load 2 tests/cli/test_main.py"
	python tools/flaky.py $(FLAKY_FLAGS)

demo: setup ## compile a campus gateway of 5,000 rules, and show what its packets read then
	@mkdir -p out
	hitables compile rulesets/campus.rules.gz -o out/campus.rules
	@python -m benchmarks.before_after rulesets/campus.rules.gz out/campus.rules

deb: setup ## a package for Debian and Ubuntu, with manual pages, in out/: apt install ./out/hitables_*.deb
	@rm -rf out/wheel && mkdir -p out/wheel
	pip wheel --quiet --no-deps -w out/wheel .
	python tools/deb.py out/wheel/*.whl out

check: test lint types c-warnings sanitize ## tests, linter, types, C warnings, sanitizers

lint: setup
	ruff check .
	ruff format --check .

types: setup
	mypy
	MYPYPATH=rulesets mypy rulesets/*.py

c-warnings:
	@for file in $(C_SOURCES); do \
	    echo "cc -Wall -Wextra -Werror $$file"; \
	    cc -std=gnu11 -O2 -Wall -Wextra -Werror $(C_INCLUDES) -c "$$file" -o /dev/null; \
	done

sanitize: setup ## the tests of the C engine under the address and undefined-behaviour sanitizers
	tools/sanitize

corpus: setup ## real rule sets, before and after, in real kernels (needs root and ../shared)
	python -m benchmarks.chains
	python -m benchmarks.corpus $(CORPUS_FLAGS)

accepts: setup ## what iptables takes and what is read here: 32,000 texts, valid and broken (needs root)
	python -m benchmarks.accepts --json docs/evaluation/accepts.json $(BENCH_FLAGS)

prove: setup ## every real rule set proved equal to its compiled form (needs ../shared)
	python -m benchmarks.prove $(BENCH_FLAGS)

compiles: setup ## 5,000 rule sets of every style, with options of every kind: compiled and proved, each of them
	python -m benchmarks.compiles $(BENCH_FLAGS)

saves: setup ## every real rule set and every spelling of every option proved equal to its own save (needs root and ../shared)
	python -m benchmarks.saves $(BENCH_FLAGS)

mutants: setup ## 3,000 rule sets with one mistake each: caught, or proved equal (needs root and ../shared)
	python -m benchmarks.mutants $(BENCH_FLAGS)

writes: setup ## 50,000 programs whose rules write what others read: both engines, and the kernel for a sample (needs root)
	python -m benchmarks.writes $(BENCH_FLAGS)

failing-malloc: setup ## each allocation of the engine refused in turn: the answers, and the classifiers afterwards
	python -m benchmarks.failing_malloc $(BENCH_FLAGS)

matrix: setup ## every match behind every writer, in real kernels, against the table of both (needs root)
	python -m benchmarks.matrix $(BENCH_FLAGS)

evaluation: setup ## all experiments of the five papers, in stages that can be resumed, and docs/evaluation.md (11 hours; BENCH_FLAGS=--short: ten minutes)
	python -m benchmarks.record.run $(BENCH_FLAGS)

papers-hitables: setup ## the evaluation of the HiTables paper again (45 minutes; BENCH_FLAGS=--short: one; needs root)
	python -m benchmarks.conext2014 $(BENCH_FLAGS)

papers-sfl: setup ## the evaluation of the SFL paper again (hours, resumed where it was; BENCH_FLAGS=--short: a minute)
	python -m benchmarks.lcn2016 $(BENCH_FLAGS)

papers-layer4: setup ## the evaluation of the layer-4 paper again: Grid-of-Tries, tuple space search, PACARS
	python -m benchmarks.layer4 $(BENCH_FLAGS)

papers-events: setup ## filters with actions and events: from a packet to the filter that answers it (7 minutes, needs root)
	python -m benchmarks.events $(BENCH_FLAGS)

papers-flows: setup ## the flow state paper again, a day of packets (an hour; BENCH_FLAGS=--short: a minute); TRACE=FILE: of a capture
	python -m benchmarks.flow_tables $(if $(TRACE),--trace "$(TRACE)") $(BENCH_FLAGS)

papers-storm: setup ## the evaluation of the Storm paper again: hit ratios, caches, threads (BENCH_FLAGS=--short for minutes)
	python -m benchmarks.storm $(BENCH_FLAGS)

papers-storm-cores: setup ## the threads of the Storm paper with a core for each (two minutes; needs eight cores or more)
	python -m benchmarks.storm --cores --packets 600000 --runs 8 $(BENCH_FLAGS)

papers-sfl-kernel: setup ## table II of the SFL paper in the kernel: packets/s while updates arrive (75 minutes; needs root)
	python -m benchmarks.lcn2016_kernel $(BENCH_FLAGS)

papers-hitables-saturation: setup ## figures 5b and 5c of the HiTables paper by packets received (an hour; needs root)
	python -m benchmarks.saturation $(BENCH_FLAGS)

bench-kernel: setup ## time per packet in the kernel, before and after, in one run (needs root)
	python -m benchmarks.kernel $(BENCH_FLAGS)

bench-hot: setup ## time per packet in the kernel with hot rules, beside trees alone, in one run (needs root and ../shared)
	python -m benchmarks.hot $(BENCH_FLAGS)

bench-costs: setup ## the cost model against the kernel, whole rule sets (needs root)
	python -m benchmarks.cost_model $(BENCH_FLAGS)

bench-generate: setup ## sets made from the public seeds beside the published ones (needs ../shared)
	python -m benchmarks.seeds $(BENCH_FLAGS)

bench-engine: setup ## the classifiers beside DPDK's rte_acl, in one run (needs ../shared; as root installs libdpdk-dev)
	@pkg-config --exists libdpdk || [ "$$(id -u)" != 0 ] || apt-get install -y -q libdpdk-dev pkg-config
	python -m benchmarks.classifiers $(BENCH_FLAGS)
	python -m benchmarks.scaling $(BENCH_FLAGS)

bench-traffic: setup ## generated traffic: what it is like, and packets a second generated, read and measured
	python -m benchmarks.traffic $(BENCH_FLAGS)

sanitize-threads: ## searches while rules change, under the thread sanitizer (needs clang)
	tools/threads/run

fuzz-engine: ## libFuzzer on build and update of every classifier, FUZZ_SECONDS long (needs clang)
	tools/fuzz/run $(or $(FUZZ_SECONDS),600)

bench-speed: setup ## time and memory of reading and compiling, beside iptables-restore --test (needs root)
	python -m benchmarks.compile_speed $(BENCH_FLAGS)

bench-compile: setup ## time and memory of compiling, text to text, proof included, by stage (needs ../shared)
	python -m benchmarks.compile_speed --compile $(BENCH_FLAGS)

bench-live: setup ## what apply, status, persist, rollback and a boot of large rule sets take (needs root)
	python -m benchmarks.live_costs $(BENCH_FLAGS)

bench-cliffs: setup ## time and memory of each command by rules, chains, nesting, matches, addresses; exit 1 if one grows too fast
	python -m benchmarks.cliffs $(BENCH_FLAGS)

bench-trees: setup ## growth and rules read on the public sets, beside the goals (needs ../shared)
	python -m benchmarks.trees $(BENCH_FLAGS)

bench-interfaces: setup ## trees of interfaces: 70 and 200 bridges that must not reach each other
	python -m benchmarks.interfaces $(BENCH_FLAGS)

bench-kinds: setup ## lists of kinds of rules that public sets lack: accounting, shaping, translation, strings, owners
	python -m benchmarks.kinds $(BENCH_FLAGS)

bench-macs: setup ## lists of hardware addresses in the kernel, beside sets of them (needs root)
	python -m benchmarks.macs $(BENCH_FLAGS)

bench-real: setup ## public sets with states, LOG, memory, jumps, RETURN besides: trees and proofs (needs ../shared)
	python -m benchmarks.real $(BENCH_FLAGS)

bench-sflgen: setup ## updates of compiled sets: time, rate, rules read, kills (needs root and ../shared)
	python -m benchmarks.updates $(BENCH_FLAGS)

bench-reading: setup ## reading a kernel of 13,500 rules, compared with what is loaded (needs root)
	python -m benchmarks.reading $(BENCH_FLAGS)

apply-campaign: setup ## 200 applies cut short at random moments, both backends and families (needs root)
	python -m benchmarks.applies $(BENCH_FLAGS)

lowest: setup ## the commands with the oldest versions of the libraries that the package takes (needs PyPI)
	tools/lowest

ansible: setup ## ansible-test of the collection in integrations/: its unit tests, and the rules for modules (needs PyPI)
	rm -rf out/ansible && mkdir -p out/ansible && cp -r integrations/ansible_collections out/ansible/
	cd out/ansible/ansible_collections/hitables/firewall && git init -q . && git add -A && \
	    ansible-test units && ansible-test sanity --test validate-modules

neighbours: setup ## 1,000 applies and 1,000 patches beside the real fail2ban and a program like docker (needs root)
	python -m benchmarks.neighbours $(BENCH_FLAGS)

bench-apply-gaps: setup ## how long packets meet the new rules of one table and the old ones of another (needs root)
	python -m benchmarks.apply_gaps $(BENCH_FLAGS)

rulesets: setup ## write the rule sets in rulesets/ anew, from their seeds
	python rulesets/make.py

golden: setup ## record the cases in tests/cases anew
	python tests/support/golden.py

pictures: setup ## draw the pictures of the docs anew, from real compiles
	@mkdir -p out
	hitables compile docs/example/office.rules -o out/office.rules
	python tools/picture.py out/office.rules FORWARD docs/example/office.svg

count: setup ## record the number of tests in tests/count; CI fails when there are fewer
	@python -m pytest --collect-only -q | grep -c '^tests/.*::' >tests/count
	@echo "$$(cat tests/count) tests"

clean: ## remove what make made
	rm -rf .venv build out .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
