"""The price method: Lagrangian prices of the resources, at which every class of jobs decides.

In an allocation program only the capacities couple the classes. With prices p on these rows it
decomposes into one small problem per class, whose solution is the best response of the class;
p . W plus the value of all responses is a bound (the Lagrangian dual). Six searches for the
best prices end in an optimum and its proof:

- `max_min`: the smallest level. In-out cutting planes (`cutting_planes`): the `oracle` solves the
  problems of the classes, whose demand is a subgradient of the dual; the `master` program mixes
  the responses (Dantzig-Wolfe). Then `polish`: nearly all classes are pinned to their responses,
  and a linear program decides about the others. `sampling` finds the first prices where classes
  are many; `interior_minimum` goes on where prices are too many for cutting planes.
- `targets`: the same where the level that a class needs for a value is no multiple of it, because
  of deadlines, jobs that stay where they are, or delays: a sequence of such searches.
- `clock`: a stage of water filling, by such a sequence too.
- `linear_total`: a total of levels, in the same way; above floors with `floor_choice`. The last
  program of a water filling is one.
- `interior`: a total of concave utilities, above floors with `floor_steps`, by a primal-dual
  interior-point method whose Newton systems are reduced to the prices. `steps` are its sweeps over
  the classes.
- `pinned_total`: the same total where classes are very many: nearly all are pinned to their
  `best_response`.

`solver` is the back-end: program in, values out, by a file `solve_...` for each sort of
program, and `answers`. `market` and `goods` are the program in the form in which prices solve it,
`merging` makes equal classes one, `watch` ends a search at a limit.

Sweeps over all classes exist twice: in numpy, and compiled by numba (`kernels`, `steps_compiled`,
`_choose` in `best_response`). Without numba (the extra ``fast``) there is numpy alone. With it, a
new process takes 1.5 to 2 s to load numba and the compiled code, so that numpy is faster up to
millions of entries; the size of the market alone decides (`compiling`). The numpy sweep is the
definition, and tests compare the two.
"""
