"""Only what can be placed: gangs find room on nodes, and inside the groups that their rates are
for."""

from __future__ import annotations

from collections.abc import Sequence

from optsched.arrays import BoolArray, IntArray
from optsched.candidates import Classes
from optsched.candidates.going_on import places_of
from optsched.formulation import ConstraintOptions, SideConstraint
from optsched.instance import Instance
from optsched.instance.durations import UNLIMITED, Timer
from optsched.instance.staying import must_stay
from optsched.program import SideRows, Space
from optsched.program.space import GangTypes, NodeClasses, TenantCells, capacity_rows


class Placeable(SideConstraint):
    """Promise only what can be placed on nodes.

    Totals of a pool do not know nodes: three gangs of 8 GPUs seem to fit into two racks of 12. Let
    N_t(x) be the sum of x over the columns of a type t of gangs (GPUs g_t, nodes, level of the
    topology, share of each GPU, needs per GPU). For every size s, with pieces_t(s) the least number
    of pieces of s or more GPUs on one node over all splits of the gang, and w_t the slices of one
    profile (MIG) or their compute slices, of which a legal layout has w_l and a whole GPU all:

        sum_t pieces_t(s) N_t(x)     <=  sum over nodes of floor(GPUs / s)                  (placeable)
        sum_t floor(g_t / s) N_t(x)  <=  sum over groups of floor(GPUs / s)     gangs inside one group
        sum_t g_t floor(share_t / s) N_t(x)  <=  sum over GPUs of floor(1 / s)              shares s
        sum_t g_t u_s(share_t) N_t(x)  <=  GPUs                                             shares s <= 1/2
        sum_t g_t w_t N_t(x)  <=  sum over GPUs of the largest w_l                          slices
        sum_t g_t [need_t >= d] N_t(x)  <=  sum over nodes of floor(capacity / d)           CPUs, memory d

    where u_s(a) = 1 for a > 1 - s, 0 for a < s, and a between: beside a share of more than 1 - s
    there is no room for one of s. Gangs that no group has room for, even alone, have N_t(x) <= 0.

    Running jobs that cannot be preempted stay where they are: they have no other columns, and
    others have what they leave of their GPUs and nodes.

    These rows hold at every instant, hence on average: for fractions of time they are a relaxation.

    A program of whole jobs (``integral``) has in addition the columns and rows of
    `optsched.program.space.seats`, which say which nodes hold which parts of the gangs. Its points
    are placements. Where nodes can hold jobs in too many ways, their contents are priced
    (`optsched.solving.contents_on_demand`). `optsched.solve` places its answer by best fit, and
    where that leaves a row without a place, or on more nodes than it needs, compares with the
    placement of the program.

    Options
        none.

    References
        S. Fekete, J. Schepers, "New classes of fast lower bounds for bin packing problems",
        Mathematical Programming 91, 2001 (dual feasible functions); P. C. Gilmore, R. E. Gomory, "A
        linear programming approach to the cutting-stock problem", Operations Research 9, 1961.
    """

    kind = "placeable"
    also_reads = frozenset({"partitions"})
    knows_nodes = True
    single = True
    of_sums = True

    class Options(ConstraintOptions):
        """It has no options of its own."""

    options: Options

    def labels(self, instance: Instance) -> IntArray | None:
        """Where a job runs that keeps its GPUs."""
        stays = must_stay(instance)
        return places_of(instance, stays) if stays.any() else None

    def rows(self, C: Classes) -> SideRows | None:
        gangs = GangTypes.of(C)
        nodes = NodeClasses.of(C.instance, gangs)
        return capacity_rows(C, gangs, nodes)

    def space(
        self,
        C: Classes,
        apart: Sequence[BoolArray] = (),
        cells: Sequence[TenantCells] = (),
        timer: Timer = UNLIMITED,
    ) -> Space:
        return Space.of(C, apart, cells, timer)
