"""A state kept open: commands are taken line by line, and each is answered with its patch.

    -I INPUT 1 -s 192.0.2.7 -j DROP      a command of iptables is one update
    begin … commit                       the commands between them are one patch, all or none
    fold [TABLE CHAIN]                   trees are grown anew
    status

An answer is the lines of the patch, then `ok VERSION`; or `error REASON` if nothing was changed.  Of a batch
only `commit` is answered.  With a kernel, `ok` is answered when the kernel has the patch.  Chains are folded
in the background (fold_scheduler.py); without a kernel the patch of a fold is part of the next answer to an
update.

Updates are planned and proved one behind the other while the kernel loads earlier ones, and go to it
together when it is ready.  Two threads: one plans, the other loads and commits; the store belongs to the
second while it is busy.  `fold` alone is committed by the first, while the second is idle.  server.py
connects a session to files and sockets.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from hitables.errors import HitablesError
from hitables.rule_lines import lines_of

from . import front_tree
from .chain_names import GeneratedNames
from .commands import CommandReader
from .commit import loader
from .edits import Edit, Op
from .fold_scheduler import FoldScheduler
from .kernel import Drift, Kernel
from .planner import Plan, costs_a_fold, fold_unproved, merged, plan_unproved
from .proof import planner, prove_plan
from .repair import check
from .settings import Strategy
from .state import State
from .store import Store

# Updates that are planned ahead of those that the kernel has, at most.
MAX_AHEAD = 16

# Lines of a fold that is loaded as one patch because an update alone costs as much as a fold.
MOST_AT_ONCE = 2000

Reply = Callable[[str], None]


@dataclass(slots=True)
class _Request:
    """Lines with one answer: the text of *plan* once it is loaded; without a plan, *answer* in its turn.

    The plans of a background fold are requests without a client: their *reply* is None.
    """

    lines: Sequence[str]
    reply: Reply | None
    plan: Plan | None
    answer: str = ""


class Session:
    """One stream of commands over an open store, whose kernel (if any) holds the state.

    waiting  requests whose plans are made and proved, each for the state behind the one before
    loading  requests that the second thread loads as one patch, and its result
    """

    def __init__(
        self,
        store: Store,
        kernel: Kernel | None,
        proving: bool = True,
        report: Callable[[str], None] = lambda message: None,
    ) -> None:
        """*report* gets messages that answer no client."""
        self.store, self.kernel, self.proving, self.report = store, kernel, proving, report
        self.batches: dict[object, list[str]] = {}  # begun and not committed, by client
        self.waiting: deque[_Request] = deque()
        self.loading: tuple[list[_Request], Future[None]] | None = None
        self.thread = ThreadPoolExecutor(1)
        self.wake_reader, self.wake_writer = os.pipe()  # the second thread writes a byte when it is done
        self.events = select.epoll()
        self.events.register(self.wake_reader, select.EPOLLIN)
        staged = kernel is not None and kernel.settings.backend == "nft"
        self.retry_front_tree = 0  # the version from which a tree of entries is tried again
        self.folds = FoldScheduler(proving, staged, self.events, report)

    def fileno(self) -> int:
        """A descriptor that is readable when `attend` has work to do."""
        return self.events.fileno()

    def close(self) -> None:
        """Wait for the patch under way; stop the background fold."""
        self.thread.shutdown()
        self.folds.cancel()
        if self.kernel is not None:
            self.kernel.close()
        self.events.close()
        os.close(self.wake_reader)
        os.close(self.wake_writer)

    def forget(self, client: object) -> None:
        """The client has left; what it began and did not commit is not performed."""
        self.batches.pop(client, None)

    # Commands.

    def answer(self, line: str) -> str:
        """The answer to *line*, waited for; "" if it only adds to a batch."""
        answers: list[str] = []
        self.take([line], answers.append)
        self.finish()
        return "".join(answers)

    def take(self, lines: Iterable[str], reply: Reply, client: object = None) -> None:
        """Execute *lines* from *client* (each client has its own batch).

        *reply* is called with the answers, in their order, now or in later calls of `attend`.
        """
        for line in lines:
            command = line.strip()
            batch = self.batches.get(client)
            if command == "begin" and batch is None:  # in a batch it is a line, and refused with all of it
                self.batches[client] = []
            elif batch is not None and command != "commit":
                batch.append(line)
            elif command.partition(" ")[0] in ("status", "fold"):
                self.finish()
                reply(self.execute(command))
            else:
                self.batches.pop(client, None)
                self.update([line] if batch is None else batch, reply)
        self.attend()

    def execute(self, command: str) -> str:
        """The answer to `status` or `fold`."""
        try:
            if command.startswith("fold"):
                return self.fold(command)
            if command != "status":
                raise HitablesError("status takes nothing")
            return self.status()
        except HitablesError as error:
            return _error_answer(error)

    def status(self) -> str:
        state = self.store.state
        return f"{state.master.rule_count()} rules, {state.pending()} pending\nok {state.version}\n"

    def fold(self, command: str) -> str:
        _, *chain_id = command.split()
        if len(chain_id) not in (0, 2):
            raise HitablesError("fold takes nothing, or a table and a chain")
        self.settle()
        state = self.store.state
        if chain_id:
            table, chain = chain_id
            if state.master.find_chain(table, chain) is None:
                raise HitablesError(f"there is no chain {chain} in table {table}")
        plan = fold_unproved(state, [(chain_id[0], chain_id[1])] if chain_id else None)
        if not plan.edits:
            return f"ok {state.version}\n"
        if self.proving:
            plan = prove_plan(plan)
        try:
            self.commit(plan)
        except Drift:
            if not self.take_foreign_jumps([]):
                raise
            return self.fold(command)
        return _answer(plan)

    def update(self, lines: Sequence[str], reply: Reply) -> None:
        """Plan the commands *lines* as one patch, and let it wait to be loaded."""
        self.attend()
        request = _Request(lines, reply, *self.planned(lines))
        if request.plan is not None:
            self.folds.note(request.plan, self.wait_for_thread)
            if self.kernel is None:  # only an answer can carry the new trees to the user
                trees = self.folds.new_trees(request.plan.after)
                request.plan = merged([request.plan, trees]) if trees is not None else request.plan
        self.waiting.append(request)
        if request.plan is not None and self.proving:
            self.grow_front_tree(request)
        self.attend()
        while self.loading is not None and (self.kernel is None or len(self.waiting) >= MAX_AHEAD):
            self.finish_load()

    def grow_front_tree(self, request: _Request) -> None:
        """Let a tree of entries wait behind the last *request*; without a kernel it is part of its answer."""
        assert request.plan is not None, "it was planned"
        state = request.plan.after
        chain_id = front_tree.due(state) if state.version >= self.retry_front_tree else None
        if chain_id is None:
            return
        tree = front_tree.plan_front_tree(state, chain_id)
        if tree is None:
            self.retry_front_tree = state.version + state.settings.delta
        if tree is not None and self.kernel is None:
            request.plan = merged([request.plan, tree])
        elif tree is not None:
            self.waiting.append(_Request((), None, tree))

    def planned(self, lines: Sequence[str], taken: Sequence[Edit] = ()) -> tuple[Plan | None, str]:
        """The plan of *lines* for the state behind all others; or no plan and the answer.

        *taken*: edits of other programs since the client sent them.
        """
        state = self.planned_state
        try:
            if any(line.strip() == "begin" for line in lines):
                raise HitablesError(
                    "begin within a batch, of which nothing is performed; commit ends a batch"
                )
            if len(lines) == 1 and lines[0].lstrip().startswith("*"):
                table = lines[0].strip()[1:]
                raise HitablesError(
                    f"*{table} is for the lines of a batch: begin one, or write -t {table} in each line"
                )
            reader = CommandReader(state.master, "stream", taken)
            updates = [edit for number, line in enumerate(lines, 1) for edit in reader.line(line, number)]
            if self.folds.is_busy and any(edit.op is Op.REMOVE for edit in updates):
                self.settle()  # a staged chain may jump to the chain that is removed
                state = self.planned_state
            plan = planner(self.proving)(state, updates, Strategy.GRAFT)
            plan = self.folded_at_once(plan) if costs_a_fold(plan) else plan
        except HitablesError as error:
            return None, _error_answer(error)
        return (plan, "") if plan.updates or plan.edits else (None, f"ok {state.version}\n")

    def folded_at_once(self, plan: Plan) -> Plan:
        """A plan of the same updates that folds; *plan* itself if the trees differ too much.

        nft takes a second for a patch of 20,000 lines, in which no update is answered; a fold in the
        background is loaded in pieces.
        """
        if self.kernel is not None and _tree_size(plan.before) > 2 * max(MOST_AT_ONCE, len(plan.edits)):
            return plan  # new trees seldom have half of the old rules in their places
        folded = plan_unproved(plan.before, plan.updates, Strategy.FOLD)
        if self.kernel is not None and len(folded.edits) > max(MOST_AT_ONCE, len(plan.edits)):
            return plan
        return prove_plan(folded) if self.proving else folded

    @property
    def planned_state(self) -> State:
        """The state behind all plans under way."""
        plans = [request.plan for request in self.waiting if request.plan is not None]
        if not plans and self.loading is not None:
            plans = [request.plan for request in self.loading[0] if request.plan is not None]
        return plans[-1].after if plans else self.store.state

    # Progress.

    def attend(self) -> None:
        """Answer requests that are loaded, and start the next load, without waiting."""
        if self.loading is not None and self.loading[1].done():
            self.finish_load()
        self.request_fold_step()
        self.start_load()

    def finish(self) -> None:
        """Wait until all requests are answered."""
        while self.waiting or self.loading is not None:
            self.start_load()
            if self.loading is not None:
                self.finish_load()

    def settle(self) -> None:
        """Wait until all requests are answered, stop the background fold, and remove unreachable chains."""
        self.folds.cancel()
        self.finish()
        while self.folds.is_busy:
            self.request_fold_step()
            self.finish()

    def request_fold_step(self) -> None:
        """Let the next plan of a background fold wait behind the requests of clients."""
        self.folds.unregister_if_done()
        loading = self.loading[0] if self.loading else ()
        if any(request.reply is None for request in (*self.waiting, *loading)):
            return  # one at a time
        plan = self.folds.next_piece(self.planned_state)
        if plan is None and self.kernel is not None:
            plan = self.folds.new_trees(self.planned_state)
        if plan is not None:
            self.waiting.append(_Request((), None, plan))

    # Loading.

    def start_load(self) -> None:
        """Start to load waiting requests, as many as can be one patch, if the second thread is idle."""
        while self.waiting and self.loading is None:
            first = self.waiting.popleft()
            if first.plan is None:
                assert first.reply is not None, "the requests of folds have plans"
                first.reply(first.answer)
                continue
            requests, plans = [first], [first.plan]
            while self.waiting and _can_merge(first.plan, self.waiting[0].plan):
                requests.append(self.waiting.popleft())
                plans += [plan for plan in [requests[-1].plan] if plan is not None]
            future = self.thread.submit(self.commit, merged(plans))
            self.loading = requests, future
            future.add_done_callback(self.wake)

    def finish_load(self) -> None:
        """Wait for the load under way, answer its requests, and start the next one."""
        assert self.loading is not None, "a load is under way"
        (requests, future), error = self.loading, None
        try:
            future.result()
        except HitablesError as load_error:
            error = load_error
        os.read(self.wake_reader, 1)
        self.loading = None
        if error is not None:
            self.handle_failure(requests, error)
            return
        for request in requests:
            assert request.plan is not None, "it was loaded"
            if request.reply is not None:
                request.reply(_answer(request.plan))
        self.start_load()

    def wait_for_thread(self) -> None:
        if self.loading is not None:
            wait([self.loading[1]])

    def wake(self, future: Future[None]) -> None:
        os.write(self.wake_writer, b".")

    def handle_failure(self, failed: Sequence[_Request], error: HitablesError) -> None:
        """*failed* cannot be loaded together.  A single request is answered with the error; several, and
        all that wait behind them, are planned anew and loaded one at a time.  So is a single one if other
        programs had changed jumps to foreign chains and nothing else."""
        self.folds.cancel()  # it includes their updates
        requests = [*failed, *self.waiting]
        self.waiting.clear()
        taken: list[Edit] = []
        if isinstance(error, Drift) and self.take_foreign_jumps(taken):
            self.folds.remove_later()
        elif (reply := failed[0].reply) is None:
            self.folds.fail(self.store.state, str(error))
            self.folds.pieces.clear()
        else:
            if any(request.reply is None for request in requests):
                self.folds.remove_later()
            if len(failed) == 1:
                requests.pop(0)
                reply(_error_answer(error))
        for request in requests:
            if request.reply is not None:
                request.plan, request.answer = self.planned(request.lines, taken)
                self.waiting.append(request)
                self.start_load()
                self.finish()

    def take_foreign_jumps(self, taken: list[Edit]) -> bool:
        """Take the jumps to foreign chains that other programs have changed, and add the edits to *taken*.

        False if the kernel then still differs from the state.
        """
        assert self.kernel is not None, "only a kernel can differ from the state"
        try:
            check(self.kernel, self.store, self.report, taken)
        except HitablesError:
            return False
        return True

    def commit(self, plan: Plan) -> None:
        """Commit a plan, and load it into the kernel."""
        if self.kernel is None:
            self.store.commit(plan)
        else:
            self.kernel.resolve(self.store)
            if not self.kernel.resets_policies:  # there the look under the lock is enough
                self.kernel.ensure(self.store.state)  # the tool that stays lists counters of known chains
            self.store.commit(plan, loader(self.kernel, self.store, plan))


def _tree_size(state: State) -> int:
    """The rules in the chains of all trees."""
    size = 0
    for table in state.loaded:
        names = GeneratedNames(state.settings.prefix)
        size += sum(len(chain.rules) for chain in table.chains if names.is_generated(chain.name))
    return size


def _answer(plan: Plan) -> str:
    return f"{plan.text}ok {plan.after.version}\n"


def _error_answer(error: HitablesError) -> str:
    return "error " + " | ".join(lines_of(str(error))) + "\n"


def _can_merge(first: Plan, following: Plan | None) -> bool:
    """Whether two plans can be one patch: of one table, so that the kernel has all of it or nothing."""
    if following is None or not first.updates or not following.updates:
        return False  # an answer without a plan, or a plan of a fold
    tables = {edit.table for plan in (first, following) for edit in plan.edits}
    return len(tables) == 1
