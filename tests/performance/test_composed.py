"""Models that are made of other models: chain, noisy, oracle, online."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from documents import instance_document
from instance_cases import batch_of, configurations
from refusals import refuses, stated

import optsched
from optsched.arrays import FloatArray
from optsched.assembly import make_model
from optsched.errors import InvalidInput
from optsched.instance import Instance, instance_bytes
from optsched.performance import (
    Configurations,
    Feasibility,
    JobBatch,
    Observations,
    PerformanceModel,
    Source,
)

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.composed import CachedModel
from optsched.performance.composed.online import Offsets, Scales

Document = dict[str, Any]
TABLE: Document = {"model": "table"}


def instance_of(**more: Any) -> Instance:
    """Three workloads on two pools of different GPU types, of which b lacks fast and c has no rate at all."""
    return Instance.from_document(
        instance_document(
            [
                {"name": "fast", "gpu": "F", "nodes": 2, "gpus_per_node": 4},
                {"name": "slow", "gpu": "S", "nodes": 4, "gpus_per_node": 4},
            ],
            [
                {"id": "j0", "workload": "a"},
                {"id": "j1", "workload": "b"},
                {"id": "j2", "workload": "c"},
                {"id": "j3", "workload": "b", "throughput": {"slow": 2.0}},
            ],
            workloads={
                "a": {"throughput": {"fast": {"1": 10.0, "2": 18.0}, "slow": {"1": 4.0, "2": 7.0}}},
                "b": {"throughput": {"slow": {"1": 1.0}}},
                "c": {},
            },
        )
        | more
    )


FOUR = configurations([(0, 1, 1), (1, 1, 1), (0, 2, 1), (1, 2, 1)])


def oracle(**rates: Any) -> Document:
    return {"model": "oracle", "throughput": rates}


# --- chain ------------------------------------------------------------------------------------------------------------


def test_each_cell_comes_from_the_first_model_that_knows() -> None:
    instance = instance_of()
    first, second = (
        oracle(c={"fast": {"1": 3.0}, "slow": {"1": 0.0}}),
        oracle(b={"fast": 9.0}, c={"slow": 5.0}),
    )
    model = make_model(instance, {"model": "chain", "models": [TABLE, first, second]})
    said = model.predict(batch_of(instance), FOUR)
    assert said.rate.tolist()[:3] == [
        [10.0, 4.0, 18.0, 7.0],
        [9.0, 1.0, 0.0, 0.0],
        [3.0, 0.0, 0.0, 0.0],
    ]
    ok, zero, none = Feasibility.OK, Feasibility.ZERO_RATE, Feasibility.NO_RATE
    assert said.feasible[2].tolist() == [ok, zero, none, none]
    rows, columns = (index.ravel() for index in np.indices(said.rate.shape))
    flat = model.predict(batch_of(instance), FOUR, edges=(rows, columns))
    assert (flat.rate.reshape(said.rate.shape) == said.rate).all()
    assert (flat.feasible.reshape(said.rate.shape) == said.feasible).all()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"model": "chain"}, "performance.models: found nothing, expected a list of performance objects"),
        ({"model": "chain", "models": []}, "performance.models: found an empty list"),
        ({"model": "chain", "of": TABLE}, 'performance.of: found {"model": "table"}, expected no such key: the chain '
                                          'model takes "models", a list of performance objects'),
        ({"model": "chain", "models": [TABLE], "of": TABLE}, 'performance.of: found {"model": "table"}, expected no'),
        ({"model": "noisy", "models": [TABLE]}, 'performance.models: found [{"model": "table"}], expected no such key: '
                                                'the noisy model takes "of", a performance object'),
        ({"model": "cached", "of": TABLE, "models": []}, "performance.models: found [], expected no such key"),
        ({"model": "noisy", "of": {"model": "cached"}}, "performance.of.of: found nothing, expected a performance"),
        ({"model": "chain", "models": [TABLE, {"model": "tabel"}]}, 'performance.models[1].model: found "tabel"'),
        ({"model": "chain", "models": [TABLE, {}]}, "performance.models[1].model: found null"),
        ({"model": "chain", "models": 3}, "performance.models: found 3"),
        ({"model": "chain", "models": [3]}, "performance.models[0]: found 3"),
        ({"model": "chain", "models": [TABLE], "x": 1}, "performance.x: found an unknown key 'x'"),
        ({"model": "noisy"}, "performance.of: found nothing, expected a performance object"),
        ({"model": "noisy", "of": {"model": "noisy", "of": TABLE, "sd": -1}}, "performance.of.sd: found -1"),
        ({"model": "online", "of": TABLE, "forget": 0}, "performance.forget: found 0"),
        ({"model": "online", "of": TABLE, "sd": {"cell": 0}}, "performance.sd.cell: found 0"),
        ({"model": "online", "models": [TABLE, TABLE]}, 'performance.models: found [{"model"'),
        (oracle(d={"fast": 1.0}), "performance.throughput.d: found no workload of the instance"),
        (oracle(a={"fats": 1.0}), "performance.throughput.a.fats: found no pool"),
        (oracle(a={"fast": -1.0}), "performance.throughput.a.fast: found -1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_path(document: Document, words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        make_model(instance_of(), document)
    assert stated(f"{words}...").holds(raised.value), raised.value


# --- what the instance states -----------------------------------------------------------------------------------------


def test_a_chain_fills_what_the_instance_leaves_out() -> None:
    instance = instance_of(
        performance={"model": "chain", "models": [oracle(a={"fast": 99.0}, b={"fast": 9.0})]}
    )
    candidates = optsched.compile(instance)
    assert rates(candidates) == {"j0": {10.0, 4.0}, "j1": {9.0, 1.0}, "j3": {2.0}}


def test_a_correction_hears_what_is_stated_and_its_word_counts() -> None:
    instance = instance_of(
        performance={"model": "oracle", "throughput": {"a": {"fast": 99.0}, "b": {"fast": 9.0}}}
    )
    # The oracle replaces a on fast; what it does not know stays; a job's own table stays complete.
    assert rates(optsched.compile(instance)) == {"j0": {99.0, 4.0}, "j1": {9.0, 1.0}, "j3": {2.0}}


def rates(candidates: Any) -> dict[str, set[float]]:
    found: dict[str, set[float]] = {}
    names = candidates.instance.jobs_table.names
    for job, kind in enumerate(candidates.kinds.of_job.tolist()):
        mine = candidates.columns.rate[candidates.columns.kind == kind]
        if len(mine):
            found[names[job]] = set(mine.tolist())
    return found


# --- noisy ------------------------------------------------------------------------------------------------------------


def test_noise_has_its_size_and_its_seed_and_nothing_else() -> None:
    count = 4000
    instance = Instance.from_document(
        instance_document(
            {"p": 1},
            [{"id": f"j{row}", "workload": f"w{row}"} for row in range(count)],
            workloads={f"w{row}": {"throughput": {"p": 2.0}} for row in range(count)},
        )
    )
    one = configurations([(0, 1, 1)])

    def logs(**options: Any) -> FloatArray:
        model = make_model(instance, {"model": "noisy", "of": TABLE, **options})
        said = model.predict(batch_of(instance), one)
        assert said.log_sd[0, 0] > 0
        return np.log(said.rate[:, 0] / 2.0)

    error = logs(sd=0.3, seed=1)
    assert np.std(error) == pytest.approx(0.3, rel=0.05) and abs(np.mean(error)) < 0.02
    assert (logs(sd=0.3, seed=1) == error).all() and abs(
        np.corrcoef(logs(sd=0.3, seed=2), error)[0, 1]
    ) < 0.05
    helios = np.exp(np.abs(logs(errors="helios")))
    for factor, share in ((1.1, 0.1), (1.5, 0.5), (2.0, 0.7), (11.0, 0.9), (101.0, 1.0)):
        assert np.mean(helios <= factor * 1.000001) == pytest.approx(share, abs=0.03)


@pytest.mark.process
def test_noise_does_not_depend_on_the_order_or_on_the_process() -> None:
    instance = instance_of()
    model = make_model(instance, {"model": "noisy", "of": TABLE})
    said = model.predict(batch_of(instance), FOUR)
    rows = np.array([2, 0, 1])
    jobs = JobBatch(*(column[rows] for column in vars(batch_of(instance)).values()))
    assert (model.predict(jobs, FOUR).rate == said.rate[rows]).all()
    code = (
        "import sys; sys.path[:0] = ['tests', 'tests/performance']; import test_composed as t;"
        "i = t.instance_of(); m = t.make_model(i, {'model': 'noisy', 'of': t.TABLE});"
        "print(m.predict(t.batch_of(i), t.FOUR).rate.tolist())"
    )
    again = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert again.strip() == str(said.rate.tolist())


def test_noise_may_be_hidden_from_the_scheduler() -> None:
    instance = instance_of()
    model = make_model(instance, {"model": "noisy", "of": TABLE, "known": False})
    assert not model.predict(batch_of(instance), FOUR).log_sd.any()


# --- cached ---------------------------------------------------------------------------------------------------------


class Counting:
    """A table that counts what it is asked."""

    name, version = "counting", 0

    def __init__(self, instance: Instance) -> None:
        self.table = make_model(instance, TABLE)
        self.asked: list[int] = []

    def predict(self, jobs: JobBatch, configurations: Configurations, **more: Any) -> Any:
        self.asked.append(len(jobs))
        return self.table.predict(jobs, configurations, **more)

    def observe(self, observations: Observations) -> set[int]:
        return {1}


def test_what_was_said_is_remembered_until_it_changes() -> None:
    instance = instance_of()
    counting = Counting(instance)
    model = CachedModel(instance, counting)
    jobs = JobBatch(*(np.tile(column, 50) for column in vars(batch_of(instance)).values()))
    right = counting.table.predict(jobs, FOUR)
    for _ in range(3):
        said = model.predict(jobs, FOUR)
        for field in ("rate", "log_sd", "feasible", "source"):
            assert (getattr(said, field) == getattr(right, field)).all()
    edges = (np.array([7, 1, 100]), np.array([3, 1, 0]))
    assert (model.predict(jobs, FOUR, edges=edges).rate == right.rate[edges]).all()
    assert counting.asked == [4]
    one = model.predict(jobs, configurations([(0, 1, 1)]))
    assert one.rate[:, 0].tolist() == right.rate[:, 0].tolist()
    assert counting.asked == [4, 4]
    assert model.observe(seen(instance, 0, 0, 1.0)) == {1}
    assert (model.predict(jobs, FOUR).rate == right.rate).all()
    assert counting.asked == [4, 4, 2]  # both rows of the workload that changed
    counting.version = 1
    model.predict(jobs, FOUR)
    assert counting.asked == [4, 4, 2, 4]


def test_models_that_look_at_workloads_alone_are_looked_up_by_them() -> None:
    instance = instance_of()
    of = make_model(instance, oracle(a={"fast": 1.5, "slow": {"2": 3.0}}, c={"fast": 2.5}))
    model = CachedModel(instance, of)
    for rows in ([0], [2, 0, 0], [3, 2, 1, 0]):
        jobs = JobBatch(*(column[rows] for column in vars(batch_of(instance)).values()))
        right, said = of.predict(jobs, FOUR), model.predict(jobs, FOUR)
        assert (said.rate == right.rate).all() and (said.feasible == right.feasible).all()
    model.observe(seen(instance, 0, 0, 1.0))


def test_old_tables_leave() -> None:
    instance = instance_of()
    counting = Counting(instance)
    model = CachedModel(instance, counting)
    for gpus in range(1, 21):
        model.predict(batch_of(instance_of()), configurations([(0, gpus, 1)]))
    model.predict(batch_of(instance_of()), configurations([(0, 20, 1)]))
    assert len(counting.asked) == 20
    model.predict(batch_of(instance_of()), configurations([(0, 1, 1)]))
    assert len(counting.asked) == 21


# --- online -----------------------------------------------------------------------------------------------------------


def online(instance: Instance, **options: Any) -> PerformanceModel:
    return make_model(instance, {"model": "online", "of": TABLE, **options})


def seen(
    instance: Instance, job: int, configuration: int, rate: float, times: int = 1
) -> Observations:
    jobs = JobBatch(*(column[[job] * times] for column in vars(batch_of(instance)).values()))
    return Observations(jobs, FOUR, np.full(times, configuration), np.full(times, rate))


def test_a_measurement_moves_its_cell_most_its_type_less_and_other_workloads_not() -> None:
    instance = instance_of()
    model = online(instance)
    before = model.predict(batch_of(instance), FOUR)
    version = model.version
    assert model.observe(seen(instance, 0, 0, 12.0)) == {0}
    assert model.version > version
    after = model.predict(batch_of(instance), FOUR)
    moved = np.log(after.rate[0] / before.rate[0])
    assert 0 < moved[1] < moved[2] < moved[0] < np.log(1.2)
    assert moved[1] == pytest.approx(moved[3])
    assert (after.rate[1:] == before.rate[1:]).all()
    assert (before.log_sd[0] == 0).all() and 0 < after.log_sd[0, 0] < after.log_sd[
        0, 2
    ] < after.log_sd[0, 1] < 0.15
    assert after.source[0, 0] == Source.MEASURED


def test_equal_measurements_converge_to_what_they_say() -> None:
    instance = instance_of()
    model = online(instance)
    for _ in range(60):
        model.observe(seen(instance, 0, 0, 25.0))
    assert model.predict(batch_of(instance), FOUR).rate[0, 0] == pytest.approx(25.0, rel=1e-3)


def test_an_outlier_moves_a_rate_by_at_most_the_clip() -> None:
    instance = instance_of()
    for factor in (100.0, 0.01):
        model = online(instance)
        model.observe(seen(instance, 0, 0, 10.0 * factor))
        after = model.predict(batch_of(instance), FOUR).rate[0, 0]
        assert abs(np.log(after / 10.0)) <= 3.0 * np.hypot(0.15, 0.05)
        for _ in range(20):
            model.observe(seen(instance, 0, 0, 10.0))
        assert model.predict(batch_of(instance), FOUR).rate[0, 0] == pytest.approx(10.0, rel=0.02)


def test_old_measurements_are_forgotten() -> None:
    instance = instance_of()
    model = online(instance)
    for _ in range(50):
        model.observe(seen(instance, 0, 0, 12.0))
    for _ in range(50):
        model.observe(seen(instance, 0, 0, 9.0))
    assert model.predict(batch_of(instance), FOUR).rate[0, 0] == pytest.approx(9.0, rel=0.01)
    for _ in range(400):  # a cell that is not measured any more disappears
        model.observe(seen(instance, 0, 1, 4.0))
    assert np.isfinite(model.predict(batch_of(instance), FOUR).rate).all()


def test_the_error_falls_as_the_field_says() -> None:
    """Prior sd .15, observation sd .05: median errors near 9.7 % before, 3.7 % after one, 1.2 % after ten."""
    rng = np.random.default_rng(0)
    count = 3000
    scales = Scales(0.106**2, 0.075**2, 0.075**2, 0.05**2, 1.0, 5.0)
    truth = rng.normal(0.0, 0.15, count)
    offsets = Offsets(scales, count, 1)
    who, zero, one = np.arange(count), np.zeros(count, np.int64), np.ones(count, np.int64)
    errors = []
    for _ in range(11):
        mean, _ = offsets.of(who, zero, one, one)
        errors.append(float(np.mean(np.abs(np.exp(mean - truth) - 1))))
        offsets.learn(who, zero, one, one, truth + rng.normal(0.0, 0.05, count))
    assert errors[0] == pytest.approx(0.12, abs=0.01)
    assert errors[1] == pytest.approx(0.037, abs=0.004)
    assert errors[2] == pytest.approx(0.028, abs=0.003)
    assert errors[10] == pytest.approx(0.012, abs=0.002)


@pytest.mark.parametrize("seed", range(5))
def test_the_offsets_are_the_posterior_of_the_nested_model(seed: int) -> None:
    """Against the dense Gaussian of all offsets, conditioned on all measurements at once."""
    rng = np.random.default_rng(seed)
    scales = Scales(0.04, 0.02, 0.01, 0.005, 1.0, 1e9)
    workload, gpu, gpus = (rng.integers(0, high, 12) for high in (2, 3, 3))
    residual = rng.normal(0.0, 0.3, 12)
    offsets = Offsets(scales, 2, 3)
    offsets.learn(workload, gpu, gpus + 1, np.ones(12, np.int64), residual)

    cells = np.array([(w, g, k) for w in range(2) for g in range(3) for k in range(3)])
    same = cells[:, None] == cells[None]
    prior = (
        scales.workload * same[..., 0]
        + scales.gpu * same[..., :2].all(-1)
        + scales.cell * same.all(-1)
    )
    row = workload * 9 + gpu * 3 + gpus
    H = np.zeros((12, 18))
    H[np.arange(12), row] = 1.0
    S = H @ prior @ H.T + scales.observation * np.eye(12)
    gain = scipy.linalg.solve(S, H @ prior).T
    mean, variance = offsets.of(cells[:, 0], cells[:, 1], cells[:, 2] + 1, np.ones(18, np.int64))
    # d is held by a prior that forgetting loosens; without forgetting it is exact.
    assert np.allclose(mean, gain @ residual, atol=1e-12)
    known = ~np.isnan(variance)
    assert np.allclose(variance[known], np.diag(prior - gain @ H @ prior)[known], atol=1e-12)


def test_what_teaches_nothing_changes_nothing() -> None:
    instance = instance_of()
    model = online(instance)
    assert model.observe(seen(instance, 2, 0, 5.0)) == set()  # the table knows no rate of c
    with refuses("observations[0].rate: found 0.0, expected a finite rate above 0"):
        model.observe(seen(instance, 0, 0, 0.0))
    with refuses("observations[0].rate: found NaN, expected a finite rate above 0"):
        model.observe(seen(instance, 0, 0, float("nan")))
    before = online(instance).predict(batch_of(instance), FOUR)
    assert (model.predict(batch_of(instance), FOUR).rate == before.rate).all()


def test_many_measurements_in_one_call_equal_one_of_their_weight() -> None:
    instance = instance_of()
    many, few = online(instance, forget=1.0), online(instance, forget=1.0)
    many.observe(seen(instance, 0, 0, 11.0, times=3))
    for _ in range(3):
        few.observe(seen(instance, 0, 0, 11.0))
    assert many.predict(batch_of(instance), FOUR).rate == pytest.approx(
        few.predict(batch_of(instance), FOUR).rate
    )


def test_a_corrected_instance_solves_with_the_corrected_rates() -> None:
    instance = instance_of()
    model = online(instance)
    plain = optsched.solve(instance, "max-throughput")
    assert optsched.solve(instance, "max-throughput", model=model).objective == pytest.approx(
        plain.objective
    )
    for _ in range(30):
        model.observe(seen(instance, 0, 0, 5.0))
    halved = optsched.solve(instance, "max-throughput", model=model)
    assert halved.objective == pytest.approx(plain.objective - 5.0, rel=2e-3)


def test_a_performance_object_of_ones_own_takes_the_place_of_the_instances(tmp_path: Any) -> None:
    path = tmp_path / "i.json"
    path.write_bytes(instance_bytes(instance_of(), "json"))
    other = oracle(a={"fast": 99.0})
    assert optsched.load(path, performance=other).performance == other
    model = tmp_path / "model.json"
    model.write_text(
        '{"format": "optsched-model/1", "model": "noisy", "of": {"model": "table"}, "sd": 0.5}'
    )
    assert optsched.load(path, performance=model).performance["sd"] == 0.5
    for text, words in (
        ("{", "model.json: found text that is not JSON..."),
        ("[]", "model.json: found []"),
        ('{"model": "table"}', "format: found null"),
        ('{"format": "optsched-model/1"}', "model: found nothing"),
        ('{"format": "optsched-model/1", "model": 3}', "model: found 3"),
    ):
        model.write_text(text)
        with refuses(words):
            optsched.load(path, performance=model)
    with refuses("found no readable file..."):
        optsched.load(path, performance=tmp_path / "none.json")
