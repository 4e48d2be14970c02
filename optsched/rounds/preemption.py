"""The rules by which a running job stays, is moved, or is stopped.

A running job is **evicted** if its nodes can no longer host it. It is **preempted** (stopped, and
waits) or **moved** to make room for others, or moved to better GPUs. A plan has the same verdicts
for all of these, `Verdict.PREEMPT` for a job that stops and `Verdict.MOVE` for one that restarts
elsewhere (`optsched.rounds.solve_round.verdicts`); only the reason tells an eviction from a
preemption.

All rules, in the order in which a round applies them, with the function of each, are the table "Who
is preempted, and why" in ``docs/reference/rounds.md``. The functions that it names without a module
are in this file.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, gathered, quotient
from optsched.candidates import JobRows
from optsched.instance.staying import Running
from optsched.placement.instant import SCRAMBLE
from optsched.rounds.rows import DUE, MUST_RUN, STARVED, URGENT, RowQueue, jobs_of

# --- eviction ---------------------------------------------------------------------------------


def evicted(running: Running, crowded: BoolArray) -> BoolArray:
    """Running jobs that cannot stay on their nodes; shape (jobs,).

    Those on nodes that drain are among them (`Running.barred`). Jobs that cannot be preempted stay
    nevertheless, unless a node is down.

    Parameters
    ----------
    running : Running
    crowded : BoolArray, shape (jobs,)
        Jobs on nodes that have less of a resource than their jobs need.
    """
    return running.barred | crowded


def runs_unplanned(
    ran: BoolArray,
    must_run: BoolArray,
    evicted: BoolArray,
    steps_left: FloatArray,
) -> BoolArray:
    """Jobs that run in a round which could not be planned: running jobs that may stay and have
    steps left, and all that cannot be preempted.
    """
    may_stay = ~evicted & (steps_left > 0)
    return ran & (may_stay | must_run)


# --- the order in which rows are tried --------------------------------------------------------


def starved(waited: FloatArray, patience: float, exempt: BoolArray) -> BoolArray:
    """Mask of the jobs that have waited for at least ``patience`` seconds and are not exempt."""
    return (waited >= patience) & ~exempt


def priority_groups(must_run: BoolArray, starved_rows: BoolArray, urgent: BoolArray) -> IntArray:
    """`MUST_RUN`, `STARVED`, `URGENT` or `DUE` for each row; shape (A,)."""
    group = np.full(len(must_run), DUE, np.int64)
    # A row in several groups belongs to the first of them, which is written last.
    group[urgent] = URGENT
    group[starved_rows] = STARVED
    group[must_run] = MUST_RUN
    return group


def rank_in_group(
    group: IntArray, is_pair: BoolArray, longest: FloatArray, slack: FloatArray
) -> FloatArray:
    """Sort key inside the groups: starved rows by their waiting time, urgent rows by their slack;
    pairs come first among rows that must run.

    Parameters
    ----------
    group : IntArray, shape (A,)
    is_pair : BoolArray, shape (A,)
    longest : FloatArray, shape (A,)
        Seconds that the job of the row has waited; for a pair, the larger value.
    slack : FloatArray, shape (A,)
        Time that the job of the row may still wait, minus its head start.
    """
    pairs_first = np.where(is_pair, -1.0, 0.0) * (group == MUST_RUN)
    rank = np.where(group == STARVED, -longest, pairs_first)
    return np.where(group == URGENT, slack, rank)


def head_start(continues: BoolArray, hysteresis: float, restart: FloatArray) -> FloatArray:
    """h_r: a waiting row must be owed this many rounds more than a running row to take its GPUs.

    Parameters
    ----------
    continues : BoolArray, shape (A,)
        Rows that run now and can continue.
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
    """Rows in the order of their group, their rank in it, and their due time.

    Ties are broken by fraction, then by rate, both descending, and last by scrambled row numbers,
    the same in every round, so that no job is favoured.
    """
    # Most keys are constant, and a plain sort is several times as fast as a lexsort. Both are
    # stable: rows that are equal in all keys stay ascending.
    keys = [key for key in (due, rank, group) if (key != key[:1]).any()]
    if len(keys) == 1:
        order = keys[0].argsort(kind="stable").astype(np.int64)
    else:
        order = np.lexsort((*keys, np.zeros(len(rows)))).astype(np.int64)
    tied = np.ones(max(len(rows) - 1, 0), bool)
    for key in keys:
        tied &= key[order[1:]] == key[order[:-1]]
    if not tied.any():
        return order
    in_a_tie = np.append(tied, False) | np.insert(tied, 0, False)
    places = in_a_tie.nonzero()[0]
    tie = np.cumsum(np.insert(~tied, 0, True))[places]
    tied_rows = order[places]
    within = tie[1:] == tie[:-1]
    scrambled = tied_rows * SCRAMBLE % 1.0
    further = [scrambled]
    for values in (rows.rate[tied_rows], rows.fraction[tied_rows]):
        # Most ties are jobs of one class, for which these values are equal: no sort is needed.
        if (values[1:] != values[:-1])[within].any():
            further.append(-values)
    if len(further) == 1:
        # The number of the tie plus a fraction below 1 is one key, which sorts three times as fast.
        order[places] = tied_rows[np.argsort(tie + scrambled)]
    else:
        order[places] = tied_rows[np.lexsort((*further, tie))]
    return order


# --- pairs that separate ----------------------------------------------------------------------


def cannot_go_on_alone(must: BoolArray, together: BoolArray, partner: IntArray) -> BoolArray:
    """Jobs that cannot continue alone on the GPUs that they hold; shape (jobs,).

    The guest of a job that cannot be preempted must leave when the two separate. Two jobs that both
    cannot be preempted and share GPUs (``together``) never separate.
    """
    guests = ~must & gathered(must, partner, False)
    return together | guests


def second_of_parting(rows: JobRows, going: IntArray, partner_now: IntArray) -> BoolArray:
    """Of two jobs that share GPUs now and both continue alone, the later one in the order: only the
    first one keeps the GPUs. Mask of shape (jobs,).

    Parameters
    ----------
    rows : JobRows
    going : IntArray
        Rows that continue, in their order.
    partner_now : IntArray, shape (jobs,)
    """
    jobs = len(partner_now)
    last = len(going)
    alone = rows.partner[going] < 0
    position = np.full(jobs + 1, last)  # position in the order of jobs that continue alone
    position[rows.job[going]] = np.where(alone, np.arange(last), last)
    position[-1] = last
    return (position[:-1] < last) & (position[partner_now] < position[:-1])


# --- displaced jobs, and the limit on their number --------------------------------------------


def displaced(queue: RowQueue, chosen: IntArray) -> BoolArray:
    """Jobs that could continue, but do not if the chosen rows run; shape (jobs,)."""
    rows = queue.rows
    jobs = len(queue.busy)
    possible = queue.order[queue.continues[queue.order]]
    continuing = possible[queue.mask(chosen)[possible]]
    could_go_on = jobs_of(rows, possible, jobs)
    goes_on = np.append(jobs_of(rows, continuing, jobs), False)
    if queue.host is not None:
        goes_on[queue.host[chosen]] = True  # rows without a host write to the last entry
    second = second_of_parting(rows, continuing, queue.partner_now)
    return could_go_on & ~(goes_on[:-1] & ~second) & ~queue.busy


def displaced_so_far(queue: RowQueue, left: RowQueue, staying: IntArray, must: BoolArray) -> int:
    """Number of running jobs that were moved, or have no row left in which they could continue.

    Parameters
    ----------
    queue : RowQueue
        All rows.
    left : RowQueue
        Rows that have not been tried yet.
    staying : IntArray
        Rows that keep their GPUs.
    must : BoolArray, shape (jobs,)
        Jobs that cannot be preempted, which do not count.
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
    """Mask of the rows in which running jobs stay so that the limit is kept; shape (A,).

    These are rows of displaced jobs, the earliest due first, until few enough jobs are displaced;
    and the chosen rows that continue and do not conflict with these.

    Parameters
    ----------
    queue : RowQueue
    chosen : IntArray
        Rows that would run without a limit.
    preemptions_left : float
        Most running jobs that may be preempted or moved.
    """
    rows = queue.rows
    leaving = displaced(queue, chosen)
    stay = _back_in_place(queue, chosen, leaving, preemptions_left)
    back = np.append(jobs_of(rows, stay.nonzero()[0], len(leaving)), False)
    conflicts = back[rows.job] | back[rows.partner] | leaving[rows.job]
    unaffected: BoolArray = queue.mask(chosen) & queue.continues & ~conflicts
    return stay | unaffected


def _back_in_place(
    queue: RowQueue, chosen: IntArray, leaving: BoolArray, preemptions_left: float
) -> BoolArray:
    """Mask of the rows in which displaced jobs (``leaving``) stay after all, the earliest due first;
    shape (A,).
    """
    rows = queue.rows
    candidates = _ways_to_stay(queue, chosen)
    # Two jobs that share GPUs can only stay as a pair.
    pair_of = {
        job: row
        for row in candidates[rows.partner[candidates] >= 0].tolist()
        for job in (int(rows.job[row]), int(rows.partner[row]))
    }
    # If a pair separates, only one job stays: the other one remains displaced.
    # The last entry is read for jobs without a partner, whose mate is -1.
    mate = np.append(queue.partner_now, -1)
    mate[list(pair_of)] = -1
    restorable = np.append(leaving, False)
    goes_on_alone = chosen[(queue.continues & (rows.partner < 0))[chosen]]
    alone = rows.job[goes_on_alone]
    restorable[mate[alone[~leaving[alone]]]] = False
    stay = np.zeros(len(rows), bool)
    left = int(leaving.sum())
    for first in candidates.tolist():
        row = pair_of.get(int(rows.job[first]), first)
        job = int(rows.job[row])
        partner = int(rows.partner[row])
        back = [one for one in (job, partner) if restorable[one]]
        if left <= preemptions_left or not back:
            continue
        stay[row] = True
        restorable[back] = False
        left -= len(back)
        if partner < 0:
            restorable[mate[job]] = False
    return stay


def _ways_to_stay(queue: RowQueue, chosen: IntArray) -> IntArray:
    """Rows that are not chosen and in which running jobs could continue, in the order."""
    rows = queue.rows
    # A job with a row that must run stays in that row.
    must_run = jobs_of(rows, chosen[queue.must_run[chosen]], len(queue.busy))
    fixed = np.append(must_run, False)
    possible = queue.continues & ~queue.mask(chosen)
    possible &= ~(fixed[rows.job] | fixed[rows.partner])
    return queue.order[possible[queue.order]]


def victims(position: IntArray, row: int, movable: IntArray) -> IntArray:
    """Rows that may be stopped for a row without room: those behind it, the last in the order
    first.

    Rows ahead of it are never stopped for it, but they may be moved (`Occupants.clear_for`).

    Parameters
    ----------
    position : IntArray, shape (A,)
        Position of each row in the order.
    row : int
        The row that needs room.
    movable : IntArray
        Rows that may leave their GPUs.
    """
    behind = movable[position[movable] > position[row]]
    last_first: IntArray = behind[np.argsort(-position[behind], kind="stable")]
    return last_first
