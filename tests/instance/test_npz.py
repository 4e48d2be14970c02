"""Instances as npz: deterministic bytes, and nothing believed that stands in a file."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses, stated

# Private names: readers and writers are checked one by one, below `Instance`
from optsched.arrays import AnyArray, npz
from optsched.errors import InvalidInput, UsageError
from optsched.instance import Instance, instance_bytes
from optsched.instance.archive import from_npz

Document = dict[str, Any]
Arrays = dict[str, AnyArray]
UNREADABLE = "found an npz file that can't be read (..."


@pytest.fixture(scope="module")
def instance() -> Instance:
    return Instance.from_document(
        json.loads((Path(__file__).parent / "everything.json").read_text())
    )


@pytest.fixture(scope="module")
def written(instance: Instance) -> Arrays:
    with np.load(io.BytesIO(instance_bytes(instance, "npz"))) as archive:
        return dict(archive)


@pytest.fixture
def arrays(written: Arrays) -> Arrays:
    return {name: array.copy() for name, array in written.items()}


@pytest.fixture
def header(arrays: Arrays) -> Document:
    document: Document = json.loads(arrays["header"].tobytes())
    return document


def packed(arrays: Arrays, header: Document | None = None) -> bytes:
    if header is not None:
        arrays = arrays | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


def refused(arrays: Arrays, header: Document | None = None) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        from_npz(packed(arrays, header))
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()
    return caught.value


def test_numpy_reads_it_and_its_own_writing_is_read(instance: Instance, arrays: Arrays) -> None:
    assert arrays["jobs_steps"].tolist() == [10000, 500, 20, 1]
    assert from_npz(packed(arrays)).sha256 == instance.sha256


def test_equal_instances_give_equal_bytes(everything: Document, instance: Instance) -> None:
    data = instance_bytes(instance, "npz")
    assert instance_bytes(Instance.from_document(everything), "npz") == data
    again = from_npz(data)
    assert instance_bytes(again, "npz") == data
    assert instance_bytes(from_npz(instance_bytes(again, "npz")), "npz") == data


def test_entries_are_compressed_and_carry_no_date(instance: Instance) -> None:
    with zipfile.ZipFile(io.BytesIO(instance_bytes(instance, "npz"))) as archive:
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_DEFLATED
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.create_system == 3


def test_equal_jobs_take_no_room() -> None:
    instance = Instance.from_arrays(pools={"v100": 4}, throughput=np.ones((100_000, 1)))
    data = instance_bytes(instance, "npz")
    assert len(data) < 100_000
    assert from_npz(data).sha256 == instance.sha256


def test_generated_names_stay_generated() -> None:
    instance = Instance.from_arrays(pools={"v100": 4}, throughput=[[1.0], [2.0]])
    again = from_npz(instance_bytes(instance, "npz"))
    assert again.jobs_table.names.generated
    assert again.sha256 == instance.sha256


def test_truncated(instance: Instance) -> None:
    data = instance_bytes(instance, "npz")
    for length in range(0, len(data), 101):
        with refuses(UNREADABLE):
            from_npz(data[:length])


def test_any_flipped_byte_is_noticed_or_harmless(instance: Instance) -> None:
    """Entries have checksums; what lies outside them (dates, attributes) may differ."""
    data = instance_bytes(instance, "npz")
    rng = random.Random(1)
    refusals = 0
    for place in rng.sample(range(len(data)), 300):
        broken = bytearray(data)
        broken[place] ^= 1 << rng.randrange(8)
        try:
            assert from_npz(bytes(broken)).sha256 == instance.sha256
        except InvalidInput as error:
            refusals += 1
            assert len(str(error)) < 300
            assert str(error).isprintable()
    assert refusals > 150


VALUES = [  # (array, row, value, message)
    ("jobs_weight", 1, np.nan, 'jobs[1].weight: found nan (job "b"), expected a finite number'),
    ("jobs_weight", 1, 0, 'jobs[1].weight: found 0.0 (job "b"), expected a number above 0'),
    ("jobs_steps", 2, -1, 'jobs[2].steps: found -1.0 (job "c"), expected a number of at least 0'),
    ("jobs_steps", 2, np.inf, 'jobs[2].steps: found inf (job "c"), expected a finite number'),
    (
        "jobs_steps_done",
        0,
        -1,
        'jobs[0].steps_done: found -1.0 (job "a"), expected a number of at least 0',
    ),
    ("jobs_arrival", 0, np.nan, 'jobs[0].arrival: found nan (job "a"), expected a finite number'),
    (
        "jobs_arrival",
        0,
        6000,
        'jobs[0].deadline: found 5000, before the arrival 6000 (job "a"), expected a deadline not',
    ),
    (
        "jobs_deadline",
        0,
        np.nan,
        'jobs[0].deadline: found nan (job "a"), expected a number, or inf for none',
    ),
    (
        "jobs_deadline",
        0,
        -np.inf,
        'jobs[0].deadline: found -inf (job "a"), expected a number, or inf for none',
    ),
    (
        "jobs_restart_cost",
        3,
        -1,
        'jobs[3].restart_cost: found -1.0 (job "d"), expected a number of at least 0',
    ),
    (
        "jobs_isolated_time",
        3,
        np.inf,
        'jobs[3].isolated_time: found inf (job "d"), expected a finite number',
    ),
    (
        "jobs_gpus_min",
        0,
        0,
        'jobs[0].gpus: found 0 (job "a"), expected a whole number of GPUs, at least 1',
    ),
    (
        "jobs_gpus_min",
        0,
        2,
        'jobs[0].gpus: found min 2 above max 1 (job "a"), expected min at most max',
    ),
    (
        "jobs_gpus_max",
        1,
        2**40,
        f'jobs[1].gpus: found {2**40} (job "b"), expected a whole number of GPUs, at least 1',
    ),
    (
        "jobs_gpus_max",
        1,
        7,
        "jobs[1].gpus.levels: found [1, 2, 8], expected different counts from 1 to 7",
    ),
    (
        "jobs_workload",
        0,
        3,
        'jobs[0].workload: found 3 (job "a"), expected a row below 3, or -1 for none',
    ),
    (
        "jobs_workload",
        0,
        -2,
        'jobs[0].workload: found -2 (job "a"), expected a row below 3, or -1 for none',
    ),
    (
        "jobs_workload",
        2,
        -1,
        "jobs[2]: found no workload, throughput or options, expected one of them",
    ),
    (
        "jobs_tenant",
        0,
        2,
        'jobs[0].tenant: found 2 (job "a"), expected a row below 2, or -1 for none',
    ),
    (
        "jobs_levels",
        0,
        1,
        'jobs[0].levels: found 1 (job "a"), expected a row below 1, or -1 for none',
    ),
    (
        "jobs_rates",
        0,
        1,
        'jobs[0].rates: found 1 (job "a"), expected a row below 1, or -1 for none',
    ),
    ("rates_rate", 0, np.nan, "rates: found an entry out of range"),
    ("rates_rate", 0, -1, "rates: found an entry out of range"),
    ("rates_place", 0, 3, "rates: found an entry out of range"),
    ("rates_place", 0, -1, "rates: found an entry out of range"),
    ("rates_gpus", 0, -1, "rates: found an entry out of range"),
    ("rates_gpus", 0, 2**40, "rates: found an entry out of range"),
    ("rates_gpus", 0, 4, "rates: found two entries for the same place"),
    ("rates_gpus", 0, 0, "rates: found two entries for the same place"),
    ("rates_nodes", 2, 1, "rates: found two entries for the same place"),
    ("rates_nodes", 2, 0, "rates: found two entries for the same place"),
    ("rates_nodes", 2, 9, "rates: found an entry out of range"),
    ("rates_indptr", 0, 1, "rates: found arrays whose lengths disagree"),
    ("rates_indptr", 1, 99, "rates: found arrays whose lengths disagree"),
]


@pytest.mark.parametrize(("name", "row", "value", "message"), VALUES)
def test_bad_values(arrays: Arrays, name: str, row: int, value: float, message: str) -> None:
    arrays[name][row] = value
    assert stated(f"{message}...").holds(refused(arrays))


NAMES = [
    *(f"jobs_{name}" for name in ("workload", "rates", "levels", "gpus_min", "gpus_max", "tenant"))
]
NAMES += [
    f"jobs_{name}"
    for name in ("steps", "steps_done", "weight", "arrival", "deadline", "restart_cost")
]
NAMES += [f"jobs_{name}" for name in ("isolated_time", "soft_deadline", "preemptible")]
NAMES += [f"jobs_{name}" for name in ("exempt_time", "checkpoint_interval")]
RATES = [f"rates_{name}" for name in ("indptr", "place", "gpus", "nodes", "rate")]


def test_the_lists_above_are_all_arrays(arrays: Arrays) -> None:
    assert set(arrays) == {*NAMES, *RATES, "header", "names"}


@pytest.mark.parametrize("name", [*NAMES, *RATES, "header"])
def test_missing_array(arrays: Arrays, name: str) -> None:
    del arrays[name]
    assert stated(f"{name}: found nothing, expected an array of that name").holds(refused(arrays))


@pytest.mark.parametrize("name", [*NAMES, *RATES])
def test_wrong_shape(arrays: Arrays, name: str) -> None:
    good = arrays[name]
    for wrong in (good[:-1], good[:, None], np.concatenate([good, good[:1]])):
        error = refused(arrays | {name: wrong})
        shape, lengths = (
            f"{name}: found an array of shape...",
            "rates: found arrays whose lengths disagree...",
        )
        assert stated(shape).holds(error) or stated(lengths).holds(error)


@pytest.mark.parametrize("name", [*NAMES, *RATES, "header", "names"])
def test_wrong_type(arrays: Arrays, name: str) -> None:
    for dtype in ("U8", "S8", "M8[s]", "m8[s]", "c16", [("x", "i4")]):
        error = refused(arrays | {name: np.zeros(len(arrays[name]), dtype)})
        assert stated(f"{name}: found an array of ...").holds(error)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_the_wrong_kind(arrays: Arrays, name: str) -> None:
    for dtype in (
        (bool, float)
        if arrays[name].dtype == np.int64
        else (int,)
        if arrays[name].dtype == bool
        else (bool,)
    ):
        assert stated(f"{name}: found an array of ...").holds(
            refused(arrays | {name: arrays[name].astype(dtype)})
        )


@pytest.mark.parametrize("name", [*NAMES, "header", "names"])
def test_pickled_objects(arrays: Arrays, name: str) -> None:
    arrays[name] = arrays[name].astype(object)
    assert stated(
        "found an npz file that can't be read (\"Object arrays cannot be loaded when..."
    ).holds(refused(arrays))


def test_other_widths_and_byte_orders_are_fine(arrays: Arrays, instance: Instance) -> None:
    arrays["jobs_steps"] = arrays["jobs_steps"].astype(">f4")
    arrays["jobs_gpus_min"] = arrays["jobs_gpus_min"].astype(">u2")
    arrays["jobs_workload"] = arrays["jobs_workload"].astype("i1")
    arrays["jobs_arrival"] = arrays["jobs_arrival"].astype(int)
    assert from_npz(packed(arrays)).sha256 == instance.sha256


HEADERS = [  # (path, value, message start)
    (
        "archive",
        "other/1",
        "header.archive: found \"other/1\", expected one of 'optsched-instance-npz/1'",
    ),
    ("archive", ..., "header.archive: found nothing"),
    ("instance", ..., "header.instance: found nothing"),
    ("instance", [], "header.instance: found [], expected an object"),
    ("instance.format", "optsched-instance/2", "format: found "),
    ("instance.round", -1, "round: found -1, expected a number above 0"),
    ("instance.jobs", [], "jobs: found an unknown key 'jobs'"),
    ("places", "v100", 'header.places: found "v100", expected a list'),
    ("places", [], "rates: found an entry out of range"),
    ("places", ["v100", 1], "header.places[1]: found 1, expected text"),
    ("places", ["t4"], 'throughput: found "t4", expected one of v100, a100, V100-SXM2-16GB'),
    ("levels", {}, "header.levels: found {}, expected a list"),
    ("levels", [[]], "header.levels[0]: found [], expected at least 1 entry"),
    ("levels", [[1, "2"]], 'header.levels[0][1]: found "2", expected a whole number'),
    ("levels", [[2, 1]], "levels[0]: found [2, 1], expected counts in increasing order"),
    ("levels", [[1, 1]], "levels[0]: found [1, 1], expected counts in increasing order"),
    (
        "levels",
        [[1, 9]],
        "jobs[1].gpus.levels: found [1, 9], expected different counts from 1 to 8",
    ),
    ("levels", [], 'jobs[1].levels: found 0 (job "b"), expected a row below 0, or -1 for none'),
    ("count", ..., "header.count: found nothing"),
    ("count", 3, "jobs_workload: found an array of shape (4,), expected one number or shape (3,)"),
    ("count", -1, "header.count: found -1, expected a number of at least 0"),
    ("count", 4.5, "header.count: found 4.5, expected a whole number"),
    ("count", "4", 'header.count: found "4", expected a whole number'),
    (
        "count",
        2**31,
        "jobs_workload: found an array of shape (4,), expected one number or shape (2147483648,)",
    ),
    ("rare", [], "header.rare: found [], expected an object"),
    ("rare.4", {}, 'header.rare: found the key "4", expected rows below 4'),
    ("rare.-1", {}, 'header.rare: found the key "-1", expected rows below 4'),
    ("rare.x", {}, 'header.rare: found the key "x", expected rows below 4'),
    ("rare.00", {}, 'header.rare: found the key "00", expected rows below 4'),
    ("rare.0", 5, "header.rare.0: found 5, expected an object"),
    ("rare.0.steps", 5, "header.rare.0.steps: found an unknown key 'steps'"),
    ("rare.0.after", "c", 'header.rare.0.after: found "c", expected a list'),
    ("rare.0.after", ["z"], 'jobs[0].after[0]: found "z", expected the id of another job'),
    ("rare.0.after", ["a"], "jobs[0].after: found a cycle (a after a)"),
    (
        "rare.0.running.gpus",
        ["big/9"],
        'jobs[0].running.gpus[0]: found "big/9", expected a GPU of pool "v100"',
    ),
    ("rare.3.options", [], "header.rare.3.options: found [], expected at least 1 entry"),
    (
        "rare.3.options.0.pool",
        "t4",
        'jobs[3].options[0].pool: found "t4", expected one of the pools v100, a100',
    ),
    (
        "rare.3.options.0.attributes",
        1,
        "header.rare.3.options[0].attributes: found 1, expected an object",
    ),
    ("rare.3", ..., "jobs[3]: found no workload, throughput or options, expected one of them"),
    ("extra", 1, "header.extra: found an unknown key 'extra'"),
]


@pytest.mark.parametrize(("path", "value", "message"), HEADERS)
def test_bad_header(
    arrays: Arrays,
    header: Document,
    edit: Callable[[Document, str, Any], Document],
    path: str,
    value: Any,
    message: str,
) -> None:
    assert stated(f"{message}...").holds(refused(arrays, edit(header, path, value)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "found an empty header"),
        (b"{", "found text that is not JSON"),
        (b"[]", "header: found [], expected an object"),
        (b"\xff", "found text that is not JSON"),
        (b"[" * 10**5, "found text that is not JSON"),
    ],
    ids=["empty", "cut", "list", "no text", "deep"],
)
def test_header_that_is_none(arrays: Arrays, text: bytes, message: str) -> None:
    assert stated(f"{message}...").holds(
        refused(arrays | {"header": np.frombuffer(text, np.uint8)})
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({}, "names: found {}, expected a list of names"),
        (["a", "b", "c"], "ids: found 3 ids, expected one per job, 4"),
        (["a", "b", "c", "d", "e"], "ids: found 5 ids, expected one per job, 4"),
        (["a", "b", "c", "a"], 'ids[3]: found "a" a second time, expected ids that differ'),
        (["a", "b", "c", ""], 'ids[3]: found "", expected a non-empty text'),
        (["a", "b", "c", 4], "ids[3]: found 4, expected a non-empty text"),
        (["a", "b", "c", None], "ids[3]: found null, expected a non-empty text"),
        (["a", "b", "c", []], "ids[3]: found [], expected a non-empty text"),
    ],
)
def test_bad_names(arrays: Arrays, names: object, message: str) -> None:
    assert stated(message).holds(
        refused(arrays | {"names": np.frombuffer(json.dumps(names).encode(), np.uint8)})
    )


def test_elastic_job_with_a_plain_number(arrays: Arrays) -> None:
    for name in ("rates_gpus", "rates_nodes", "rates_place", "rates_rate"):
        arrays[name] = arrays[name][:1]
    arrays["rates_gpus"][0] = 0
    arrays["rates_indptr"][1] = 1
    assert stated(
        'jobs[1].throughput: found a plain number in an elastic job (job "b"), '
        'expected rates by GPU count such as {"1": 9}'
    ).holds(refused(arrays))


@pytest.mark.parametrize("shape", [(10**12,), (-1,), (5,), (4, 10**9), (2**70,)])
def test_lies_about_the_shape(instance: Instance, shape: tuple[int, ...]) -> None:
    entry, buffer = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(
        entry, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    with (
        zipfile.ZipFile(io.BytesIO(instance_bytes(instance, "npz"))) as source,
        zipfile.ZipFile(buffer, "w") as target,
    ):
        for name in source.namelist():
            steps = entry.getvalue() + instance.jobs_table.steps.tobytes()
            target.writestr(name, steps if name == "jobs_steps.npy" else source.read(name))
    with refuses(UNREADABLE):
        from_npz(buffer.getvalue())


def test_foreign_entries() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(InvalidInput) as caught:
        from_npz(buffer.getvalue())
    assert (caught.value.path, caught.value.found) == ("header", "nothing")


def test_only_its_own_entries_are_unpacked(instance: Instance) -> None:
    """An entry that no instance has may unpack to anything: nobody looks at it, here not even at its wrong bytes."""
    buffer = io.BytesIO(instance_bytes(instance, "npz"))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("other.npy", b"x" * 1000)
        where = archive.getinfo("other.npy").header_offset + 30 + len("other.npy")
    data = bytearray(buffer.getvalue())
    data[where] ^= 1
    assert from_npz(bytes(data)).sha256 == instance.sha256


def claiming(arrays: Arrays, entry: str, size: int) -> bytes:
    """The file with an entry of so many zero bytes, as an array of bytes; compressed they are next to nothing."""
    buffer, text = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(
        text, {"descr": "|u1", "fortran_order": False, "shape": (size,)}
    )
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(f"{entry}.npy", "w", force_zip64=True) as file:
            file.write(text.getvalue())
            for _ in range(0, size, 2**25):
                file.write(bytes(2**25))
        for name, array in arrays.items():
            if name != entry:
                with archive.open(f"{name}.npy", "w") as file:
                    np.lib.format.write_array(file, array)
    return buffer.getvalue()


def test_a_small_file_that_unpacks_to_a_lot(
    arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is unpacked where the directory of the zip claims more than a reader takes."""
    data = claiming(arrays, "jobs_steps", 2**26)
    monkeypatch.setattr(npz, "MOST_BYTES", 2**26)
    monkeypatch.setattr(
        np.lib.format, "read_array", lambda *_, **__: pytest.fail("something was unpacked")
    )
    with pytest.raises(InvalidInput) as caught:
        from_npz(data)
    assert "more than 67,108,864" in caught.value.found


def test_a_text_that_is_too_long(arrays: Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "MOST_TEXT", 100)
    with pytest.raises(InvalidInput) as caught:
        from_npz(packed(arrays | {"header": np.full(101, ord(" "), np.uint8)}))
    assert (caught.value.path, caught.value.found) == (
        "header",
        "a text of 101 bytes, more than 100",
    )


def test_other_compressions_are_refused(instance: Instance) -> None:
    """They unpack without a limit: a few bytes of bzip2 become 45 MB at once."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(instance_bytes(instance, "npz"))) as source,
        zipfile.ZipFile(buffer, "w") as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name), zipfile.ZIP_BZIP2)
    with refuses(
        "found an npz file that can't be read (\"jobs_workload.npy is compressed in another way..."
    ):
        from_npz(buffer.getvalue())


def test_what_could_not_be_read_again_is_not_written(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "MOST_BYTES", 1000)
    with refuses("an npz file: found ..., expected at most 1,000 in all", UsageError):
        instance_bytes(instance, "npz")
