"""Who loses its GPUs, and why: the rules by which a running job is stopped, is moved, or stays.

A running job is **evicted** if its nodes can no longer host it. It is **preempted** (stopped, and
waits) or **moved** to make room for others, or moved to better GPUs. A plan has the same verdicts
for all of these, `Verdict.PREEMPT` for a job that stops and `Verdict.MOVE` for one that restarts
elsewhere (`optsched.rounds.solve_round.verdicts`); only the reason tells an eviction from a
preemption.

The rules follow in the order in which a round applies them. A function without a module is in this
file; the modules are in `optsched.rounds`, but for `staying`, `one_node` and `beside`, which are in
`optsched.placement`.

1. **Keep.** A job that cannot be preempted keeps its GPUs (`optsched.instance.staying`), unless a
   node of it is down. So does every job within its exempt time (`stops.Stops.preemptible`).
2. **Evict.** A job leaves nodes that are down, take no more work, or have less than what runs there
   needs (`evicted`).
3. **Faster GPUs.** Under a ranking, a running job that comes before waiting ones takes idle GPUs
   first on which it ends sooner (`ranked.moves_to_idle`). With the sizes ``most`` and ``fastest``
   it may also take GPUs from jobs behind it (`ranked.rank`). With ``moves=published`` it moves
   whenever the published order has another of its rows first (`ranked._published_order`).
4. **Guests.** A job that cannot be preempted takes the first row in the order in which it keeps its
   GPUs, and whose guest is free and has room (`hosts.Hosts.chosen`). A guest that it had before
   leaves if that is another row; `hosts._Choice._preempted` counts who has to stop or move.
5. **Order.** Rows are tried in the order of their `priority_groups`: those that must run, then
   those of starved jobs (`starved`), then those of admitted jobs that would soon be too late
   (`round_rows.RoundRows.urgent`), then all others by the time at which they are due
   (`due_times`). A running row has a head start of the hysteresis and of what it costs to stop it
   now (`head_start`, `stops.Stops.cost`). Under a ranking, its order replaces the due times.
6. **Sets.** Where rows of pairs have a claim, or claims on single GPUs are split over rows, the set
   of rows that is worth most goes to the front of the last group (`selection.best_set_first`); a
   running row outside the set may lose its GPUs to it.
7. **Preempt.** A running job is preempted if no row is chosen in which it can go on (`displaced`).
8. **Limit.** At most `max_moves` jobs are displaced, and no more than `moves_per_hour` leaves
   (`RoundState.most_moves`): those that are due last. The others stay (`rows_that_stay`). A running
   job that has no row in which it can go on is displaced in any case, so it uses up the limit
   before all others (`hosts.Hosts.unable`). A starved job ignores the limit.
9. **Strict ranking.** All rows behind the first job that has no room are dropped
   (`selection.ahead_of_first_blocked`), those of running jobs too: these stop although their GPUs
   stay idle. `max_moves` does not limit this.
10. **Stay.** A chosen row that could go on may find its GPUs or CPUs in use by rows before it, or
    by a new guest (`staying.StayRule.keep`). It then needs other GPUs, as a row that starts does.
11. **Make room.** For a chosen row that finds no room, others move if all of them find room
    elsewhere, also those ahead of it: the smallest gang of a node that suffices, else the largest
    ones (`one_node.OneNodeRoom.clear_node_for`). Failing that, rows behind it (`victims`) move or stop.
    For rows that are not alone with whole GPUs of one node, `beside.Clearing` finds both. A job that
    would miss the deadline that it is held to stays (`round_rows.RoundRows.hurried`). This is
    done for the first `seating.ATTEMPTS` such rows, and for the job that has starved longest
    (`seating.Seating._seat_longest_starved`).
12. **Idle GPUs.** Where the round fills, a job moves to idle GPUs on which it ends sooner, its
    restart counted; one that shares GPUs leaves them to its partner (`idle.IdleGpus`).
13. **No plan.** If no round can be planned, jobs are only evicted, and jobs without steps left
    stop: all others run on (`runs_unplanned`).

Rules 11 and 12 stop or move no more jobs than are left of `max_moves` (`displaced_so_far`). In rule
11 a starved job ignores the limit.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, gathered, quotient
from optsched.candidates import JobRows
from optsched.instance.staying import Running
from optsched.placement.instant import SCRAMBLE
from optsched.rounds.rows import DUE, MUST_RUN, STARVED, URGENT, RowQueue, jobs_of

# --- who has to leave its nodes ---------------------------------------------------------------


def evicted(running: Running, crowded: BoolArray) -> BoolArray:
    """Running jobs that cannot stay on their nodes; shape (jobs,).

    Those that cannot be preempted stay all the same, unless a node is down.

    Parameters
    ----------
    running : Running
    crowded : BoolArray, shape (jobs,)
        Jobs on nodes that have less than what runs there needs.
    """
    return running.barred | crowded


def runs_unplanned(
    ran: BoolArray,
    must_run: BoolArray,
    evicted: BoolArray,
    steps_left: FloatArray,
) -> BoolArray:
    """Jobs that run in a round which could not be planned:
    all that ran, may stay and are not done.
    """
    may_stay = ~evicted & (steps_left > 0)
    return ran & (may_stay | must_run)


# --- the order in which rows are tried --------------------------------------------------------


def starved(waited: FloatArray, patience: float, exempt: BoolArray) -> BoolArray:
    """Jobs that have waited for the patience of the policy (seconds), but for those exempt."""
    return (waited >= patience) & ~exempt


def priority_groups(must_run: BoolArray, starved_rows: BoolArray, urgent: BoolArray) -> IntArray:
    """`MUST_RUN`, `STARVED`, `URGENT` or `DUE` for each row; shape (A,)."""
    group = np.full(len(must_run), DUE, np.int64)
    # A row of several groups is in the one that comes first.
    group[urgent] = URGENT
    group[starved_rows] = STARVED
    group[must_run] = MUST_RUN
    return group


def rank_in_group(
    group: IntArray, is_pair: BoolArray, longest: FloatArray, slack: FloatArray
) -> FloatArray:
    """The order inside the groups: starved rows by their wait, urgent ones by their slack,
    pairs first of those that must run.

    Parameters
    ----------
    group : IntArray, shape (A,)
    is_pair : BoolArray, shape (A,)
    longest : FloatArray, shape (A,)
        Seconds that the job of the row has waited, of two the longer.
    slack : FloatArray, shape (A,)
        Time that the job of the row may still wait, less its head start.
    """
    pairs_first = np.where(is_pair, -1.0, 0.0) * (group == MUST_RUN)
    rank = np.where(group == STARVED, -longest, pairs_first)
    return np.where(group == URGENT, slack, rank)


def head_start(continues: BoolArray, hysteresis: float, restart: FloatArray) -> FloatArray:
    """h_r: rounds that another row must be owed more than a running one before it takes its GPUs.

    Parameters
    ----------
    continues : BoolArray, shape (A,)
        Rows that run now and can go on.
    hysteresis : float
        Of the policy, in rounds.
    restart : FloatArray, shape (A,)
        Rounds that it costs to stop the row's jobs and start them again.
    """
    return np.where(continues, hysteresis + restart, 0.0)


def due_times(fraction: FloatArray, deficit: FloatArray, ahead: FloatArray) -> FloatArray:
    """Rounds from now until each row is due: ``(1/2 - deficit - ahead) / fraction``.

    A row without a claim (fraction 0) is never due.

    Parameters
    ----------
    fraction : FloatArray, shape (A,)
    deficit : FloatArray, shape (A,)
        Rounds that a row is owed.
    ahead : FloatArray, shape (A,)
        `head_start`.
    """
    return quotient(0.5 - deficit - ahead, fraction, np.inf)


def order_due(rows: JobRows, due: FloatArray, group: IntArray, rank: FloatArray) -> IntArray:
    """Rows in the order of their group, of their rank in it, and of the time when they are due.

    Ties go by fraction, then by rate, both falling, and last by row numbers that are scrambled in
    the same way in every round, so that no job is favoured.
    """
    # Most keys are constant, and a plain sort is several times as fast as a lexsort. Both are stable,
    # so that rows which are equal in all keys stay ascending.
    keys = [key for key in (due, rank, group) if (key != key[:1]).any()]
    if len(keys) == 1:
        order = np.argsort(keys[0], kind="stable").astype(np.int64)
    else:
        order = np.lexsort((*keys, np.zeros(len(rows)))).astype(np.int64)
    tied = np.ones(max(len(rows) - 1, 0), bool)
    for key in keys:
        tied &= key[order[1:]] == key[order[:-1]]
    if not tied.any():
        return order
    in_a_tie = np.append(tied, False) | np.insert(tied, 0, False)
    places = np.flatnonzero(in_a_tie)
    tie = np.cumsum(np.insert(~tied, 0, True))[places]
    mine = order[places]
    within = tie[1:] == tie[:-1]
    scrambled = mine * SCRAMBLE % 1.0
    further = [scrambled]
    for values in (rows.rate[mine], rows.fraction[mine]):
        # Most ties are jobs of one class, which have these in common: a sort less.
        if (values[1:] != values[:-1])[within].any():
            further.append(-values)
    if len(further) == 1:
        # The number of the tie and a fraction below 1 are one key, which sorts in a third of the time.
        order[places] = mine[np.argsort(tie + scrambled)]
    else:
        order[places] = mine[np.lexsort((*further, tie))]
    return order


# --- pairs that part --------------------------------------------------------------------------


def cannot_go_on_alone(must: BoolArray, together: BoolArray, partner: IntArray) -> BoolArray:
    """Jobs for which a row alone is no way to go on, though they hold its GPUs; shape (jobs,).

    The guest of a job that cannot be preempted has to leave when the two part. Two jobs that both
    cannot be preempted and share GPUs (``together``) never part.
    """
    guests = ~must & gathered(must, partner, False)
    return together | guests


def second_of_parting(rows: JobRows, going: IntArray, partner_now: IntArray) -> BoolArray:
    """Jobs that go on alone after the job that they share GPUs with now; shape (jobs,).

    Only the first of the two keeps the GPUs.

    Parameters
    ----------
    rows : JobRows
    going : IntArray
        Rows that go on, in their order.
    partner_now : IntArray, shape (jobs,)
    """
    jobs = len(partner_now)
    last = len(going)
    alone = rows.partner[going] < 0
    position = np.full(jobs + 1, last)  # in the order, of jobs that go on alone
    position[rows.job[going]] = np.where(alone, np.arange(last), last)
    position[-1] = last
    return (position[:-1] < last) & (position[partner_now] < position[:-1])


# --- who is preempted, and how many at most ---------------------------------------------------


def displaced(queue: RowQueue, chosen: IntArray) -> BoolArray:
    """Jobs that could go on, and do not if the chosen rows run; shape (jobs,).

    Of two jobs that share GPUs now only the first in the order goes on alone.
    """
    rows = queue.rows
    jobs = len(queue.busy)
    possible = queue.order[queue.continues[queue.order]]
    going = possible[queue.mask(chosen)[possible]]
    could_go_on = jobs_of(rows, possible, jobs)
    goes_on = np.append(jobs_of(rows, going, jobs), False)
    if queue.host is not None:
        goes_on[queue.host[chosen]] = True  # the last entry is for rows without a host
    second = second_of_parting(rows, going, queue.partner_now)
    return could_go_on & ~(goes_on[:-1] & ~second) & ~queue.busy


def displaced_so_far(queue: RowQueue, left: RowQueue, staying: IntArray, must: BoolArray) -> int:
    """Running jobs that were moved, or have no row left in which they could go on.

    Parameters
    ----------
    queue : RowQueue
        All rows.
    left : RowQueue
        The rows that are left to try.
    staying : IntArray
        Rows that go on where they are.
    must : BoolArray, shape (jobs,)
        Jobs that cannot be preempted: they do not count.
    """
    rows = queue.rows
    jobs = len(queue.busy)

    def continuing(order: IntArray) -> BoolArray:
        return jobs_of(rows, order[queue.continues[order]], jobs)

    stays = jobs_of(rows, staying, jobs)
    still_can = continuing(left.order) & ~left.busy
    gone = continuing(queue.order) & ~(stays | must) & ~still_can
    return int((gone & ~queue.busy).sum())


def rows_that_stay(queue: RowQueue, chosen: IntArray, preemptions_left: float) -> BoolArray:
    """Rows in which running jobs stay, so that no more are displaced than may be; shape (A,).

    These are rows of displaced jobs, the first due first, until few enough are displaced; and the
    chosen rows that go on and are not in the way of these.

    Parameters
    ----------
    queue : RowQueue
    chosen : IntArray
        Rows that would run if displacement were free.
    preemptions_left : float
        Running jobs that may be preempted or moved.
    """
    rows = queue.rows
    going = displaced(queue, chosen)
    stay = _back_in_place(queue, chosen, going, preemptions_left)
    back = np.append(jobs_of(rows, np.flatnonzero(stay), len(going)), False)
    in_the_way = back[rows.job] | back[rows.partner] | going[rows.job]
    going_on: BoolArray = queue.mask(chosen) & queue.continues & ~in_the_way
    return stay | going_on


def _back_in_place(
    queue: RowQueue, chosen: IntArray, going: BoolArray, preemptions_left: float
) -> BoolArray:
    """Rows in which displaced jobs (``going``) stay after all, the first due first; shape (A,)."""
    rows = queue.rows
    candidates = _ways_to_stay(queue, chosen)
    # Jobs that share GPUs can only stay together.
    pair_of = {
        job: row
        for row in candidates[rows.partner[candidates] >= 0].tolist()
        for job in (int(rows.job[row]), int(rows.partner[row]))
    }
    # Of two that part, only one stays where it is: the other counts as displaced for good.
    mate = np.append(queue.partner_now, -1)
    mate[list(pair_of)] = -1
    movable = np.append(going, False)
    goes_on_alone = chosen[(queue.continues & (rows.partner < 0))[chosen]]
    alone = rows.job[goes_on_alone]
    movable[mate[alone[~going[alone]]]] = False
    stay = np.zeros(len(rows), bool)
    left = int(going.sum())
    for first in candidates.tolist():
        row = pair_of.get(int(rows.job[first]), first)
        job = int(rows.job[row])
        partner = int(rows.partner[row])
        back = [one for one in (job, partner) if movable[one]]
        if left <= preemptions_left or not back:
            continue
        stay[row] = True
        movable[back] = False
        left -= len(back)
        if partner < 0:
            movable[mate[job]] = False
    return stay


def _ways_to_stay(queue: RowQueue, chosen: IntArray) -> IntArray:
    """Rows that are not chosen in which running jobs could go on, in the order."""
    rows = queue.rows
    # A job whose row must run is there, though that takes it away from where it is.
    must_run = jobs_of(rows, chosen[queue.must_run[chosen]], len(queue.busy))
    fixed = np.append(must_run, False)
    possible = queue.continues & ~queue.mask(chosen)
    possible &= ~(fixed[rows.job] | fixed[rows.partner])
    return queue.order[possible[queue.order]]


def victims(position: IntArray, row: int, movable: IntArray) -> IntArray:
    """Rows behind a row without room, which may stop for it, the last in the order first.

    Rows ahead of it never stop for it, but they may be moved (`Occupants.make_room`).

    Parameters
    ----------
    position : IntArray, shape (A,)
        Position of each row in the order.
    row : int
        The row that needs room.
    movable : IntArray
        Rows that may leave their GPUs: none of a job that cannot be preempted.
    """
    behind = movable[position[movable] > position[row]]
    last_first: IntArray = behind[np.argsort(-position[behind], kind="stable")]
    return last_first
