"""Gavel's throughput tables and traces as instances: every rule and message on small inputs, then the real files."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from refusals import refuses

from optsched.errors import InvalidInput, UsageError

# Private names: the readers and tables of one format, below its import
from optsched.formats.gavel import GavelThroughputs, import_gavel, read_throughputs, read_trace
from optsched.instance import Instance

Table = dict[str, dict[str, dict[str, Any]]]

KEY = "a key ('TYPE', SCALE) such as ('ResNet-18 (batch size 64)', 1)"
RATE = "a finite rate in steps/s, at least 0"
SCALE = "a whole number of GPUs, at least 1"
SLO = "a multiple of the duration above 0, or -1 for none"
ROW = 'a non-empty object by partners and "null" (the rate alone)'


def key(job_type: str, scale: int = 1) -> str:
    return str((job_type, scale))


def table() -> Table:
    """A: 1 and 2 GPUs; B: not on k80 with 2 GPUs; C: zero everywhere but on v100 with 2 GPUs; D: k80 only."""
    return {
        "k80": {
            key("A"): {"null": 1.0, key("A"): [0.4, 0.4], key("B"): [0.5, 2.5]},
            key("B"): {"null": 3.0, key("A"): [2.5, 0.5], key("B"): [0.0, 0.0]},
            key("B", 2): {"null": 0.0},
            key("D"): {"null": 7.0},
        },
        "v100": {
            key("A"): {"null": 4.79, key("B"): [4.0, 10.0], key("A"): [2.5, 2.5]},
            key("A", 2): {"null": 9.1, key("B", 2): [5.0, 12.0], key("A", 2): [0.0, 0.0]},
            key("B"): {"null": 16.0, key("A"): [10.0, 4.0], key("B"): [8.0, 0.0]},
            key("B", 2): {"null": 30.0, key("A", 2): [12.0, 5.0]},
            key("C"): {"null": 0.0},
            key("C", 2): {"null": 0.25},
        },
        "v100_unconsolidated": {key("A"): {"null": 4.5}},
    }


def job(
    job_type: str = "A",
    steps: object = 100,
    gpus: object = 1,
    weight: object = 1,
    slo: object = "-1.0",
    arrival: object = 0,
) -> str:
    cells = (
        job_type,
        "python3 main.py --data %s",
        "cv",
        "--num_steps",
        1,
        steps,
        gpus,
        weight,
        slo,
        arrival,
    )
    return "\t".join(map(str, cells))


def old_job(job_type: str = "A", steps: object = 100, gpus: object = 1, arrival: object = 0) -> str:
    return "\t".join(map(str, (job_type, "cd %s && run", "-step", 0, steps, arrival, gpus)))


def text(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def document(
    *lines: str,
    throughputs: Table | None = None,
    pools: dict[str, int] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Import, and demand that the instance loads, survives JSON, and is plain data."""
    data = json.dumps(table() if throughputs is None else throughputs).encode()
    result = import_gavel(
        data, text(*lines), {"v100": 4, "k80": 2} if pools is None else pools, **options
    )
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    Instance.from_document(result)
    return result


def refused(path: str, found: str, expected: str) -> Any:
    return refuses(f"{path}: found {found}, expected {expected}")


# The trace ---------------------------------------------------------------------------------------------------------


def test_ten_columns_become_arrays() -> None:
    trace = read_trace(
        text(job("A", 925982, 4, 2.5, 1.2, 0), "", job("B", 7, 1, 1, "-1.000000", 12.5))
    )
    assert trace.job_type == ("A", "B")
    assert trace.table.cells["command"][0] == "python3 main.py --data %s"
    assert trace.steps.tolist() == [925982.0, 7.0]
    assert trace.gpus.tolist() == [4, 1]
    assert trace.weight.tolist() == [2.5, 1.0]
    assert trace.slo[0] == 1.2
    assert math.isnan(trace.slo[1])
    assert trace.arrival.tolist() == [0.0, 12.5]
    assert trace.table.line.tolist() == [1, 3]
    assert len(trace) == 2
    assert trace.gpus.dtype == np.int64


def test_seven_columns_are_the_old_order() -> None:
    trace = read_trace(text(old_job("A", 95121, 7, 3.5)))
    assert (trace.job_type, trace.table.cells["command"]) == (("A",), ("cd %s && run",))
    assert (trace.steps[0], trace.gpus[0], trace.arrival[0], trace.weight[0]) == (
        95121.0,
        7,
        3.5,
        1.0,
    )
    assert np.isnan(trace.slo).all()


def test_windows_line_ends_a_byte_order_mark_and_no_last_line_end_are_read() -> None:
    data = b"\xef\xbb\xbf" + "\r\n".join([job(arrival=1), "  ", job("B", arrival=2)]).encode()
    trace = read_trace(data)
    assert trace.job_type == ("A", "B")
    assert trace.arrival.tolist() == [1.0, 2.0]


def test_a_strange_line_separator_inside_a_cell_splits_nothing() -> None:
    trace = read_trace(text(job().replace("main.py", "main\u2028.py"), job("B")))
    assert trace.table.line.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("line", "path", "found", "expected"),
    [
        ("A B C", "trace:3", "1 cells", "10, as in the first line"),
        (job() + "\tx", "trace:3", "11 cells", "10, as in the first line"),
        (old_job(), "trace:3", "7 cells", "10, as in the first line"),
        (job(""), "trace:3:column 1 (job_type)", "nothing", "a text"),
        (job(steps="many"), "trace:3:column 6 (total_steps)", '"many"', "a number"),
        (job(steps=-5), "trace:3:column 6 (total_steps)", '"-5"', "a number of steps, at least 0"),
        (job(steps="nan"), "trace:3:column 6 (total_steps)", '"nan"', "a number"),
        (job(steps="1_000"), "trace:3:column 6 (total_steps)", '"1_000"', "a number"),
        (job(steps="1e999"), "trace:3:column 6 (total_steps)", '"1e999"', "a number"),
        (job(steps=""), "trace:3:column 6 (total_steps)", "nothing", "a number"),
        (job(gpus=0), "trace:3:column 7 (scale_factor)", '"0"', SCALE),
        (job(gpus=-2), "trace:3:column 7 (scale_factor)", '"-2"', SCALE),
        (job(gpus=1.5), "trace:3:column 7 (scale_factor)", '"1.5"', "a whole number"),
        (job(gpus=10**12), "trace:3:column 7 (scale_factor)", f'"{10**12}"', SCALE),
        (job(weight=0), "trace:3:column 8 (priority_weight)", '"0"', "a weight above 0"),
        (job(weight=-1), "trace:3:column 8 (priority_weight)", '"-1"', "a weight above 0"),
        (job(weight="NaN"), "trace:3:column 8 (priority_weight)", '"NaN"', "a number"),
        (job(slo="none"), "trace:3:column 9 (SLO)", '"none"', "a number"),
        (job(slo="nan"), "trace:3:column 9 (SLO)", '"nan"', "a number"),
        (job(slo=-2), "trace:3:column 9 (SLO)", '"-2"', SLO),
        (job(slo=0), "trace:3:column 9 (SLO)", '"0"', SLO),
        (job(arrival=-1), "trace:3:column 10 (arrival_time)", '"-1"', "a time in seconds, at least 0"),
        (job(arrival="inf"), "trace:3:column 10 (arrival_time)", '"inf"', "a number"),
        (
            job(arrival=9.5), "trace:3:column 10 (arrival_time)", '"9.5"',
            "arrivals in ascending order",
        ),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_with_column_and_expectation(
    line: str, path: str, found: str, expected: str
) -> None:
    with refused(path, found, expected):
        read_trace(text(job(arrival=10), "", line, job(arrival=20)))


@pytest.mark.parametrize(
    ("line", "path", "found", "expected"),
    [
        (job(), "trace:2", "10 cells", "7, as in the first line"),
        (old_job(steps="x"), "trace:2:column 5 (total_steps)", '"x"', "a number"),
        (old_job(arrival="x"), "trace:2:column 6 (arrival_time)", '"x"', "a number"),
        (old_job(gpus="x"), "trace:2:column 7 (scale_factor)", '"x"', "a whole number"),
        (
            old_job(arrival=1), "trace:2:column 6 (arrival_time)", '"1"',
            "arrivals in ascending order",
        ),
    ],
)  # fmt: skip
def test_a_bad_line_of_the_old_format_has_its_own_column_numbers(
    line: str, path: str, found: str, expected: str
) -> None:
    with refused(path, found, expected):
        read_trace(text(old_job(arrival=10), line))


@pytest.mark.parametrize("data", [b"", b"\n \n\r\n"])
def test_a_trace_without_jobs_is_refused(data: bytes) -> None:
    with refused("trace", "an empty file", "lines of 10 or 7 cells between tabs"):
        read_trace(data)


def test_an_error_of_the_old_format_counts_its_own_columns() -> None:
    with refused("trace:1:column 1 (job_type)", '"zzzz"', "a job type of the throughput file"):
        document(old_job("zzzz"))
    with refused("trace:2:column 7 (scale_factor)", '"0"', SCALE):
        read_trace(text(old_job(), old_job(gpus=0)))


def test_a_trace_that_is_not_utf8_is_refused() -> None:
    with refused("trace:2", "the byte 0xff", "text in UTF-8"):
        read_trace(text(job()) + b"\xff\n")
    with refused("trace:1", "the byte 0xfe", "text in UTF-8"):
        read_trace(b"\xef\xbb\xbfab\xfe")


# The throughput file -----------------------------------------------------------------------------------------------


def test_throughputs_keep_rates_alone_and_shared() -> None:
    throughputs = read_throughputs(json.dumps(table()).encode())
    assert throughputs.worker_types == ("k80", "v100", "v100_unconsolidated")
    assert throughputs.job_types == {"A", "B", "C", "D"}
    assert throughputs.rate("v100", "A", 2) == 9.1
    assert throughputs.rate("v100", "C", 1) == 0.0
    assert throughputs.rate("v100", "A", 7) == 0.0
    assert throughputs.shared["k80"][("A", 1), ("B", 1)] == (0.5, 2.5)
    assert isinstance(throughputs, GavelThroughputs)


def test_keys_are_python_literals_whatever_their_quotes_and_spaces() -> None:
    data = json.dumps({"v100": {'("it\'s, (x)",4)': {"null": 2}}}).encode()
    assert read_throughputs(data).rate("v100", "it's, (x)", 4) == 2.0


@pytest.mark.parametrize(
    ("content", "path", "found", "expected"),
    [
        ("[]", "throughputs", "[]", "a non-empty object by worker types"),
        ("{}", "throughputs", "{}", "a non-empty object by worker types"),
        ("3", "throughputs", "3", "a non-empty object by worker types"),
        ('{"v100": 4.5}', "throughputs.v100", "4.5", "a non-empty object by job types"),
        ('{"v100": {}}', "throughputs.v100", "{}", "a non-empty object by job types"),
        ('{"v100": {"A": {"null": 1}}}', "throughputs.v100", 'the key "A"', KEY),
        ('{"v100": {"A(": {"null": 1}}}', "throughputs.v100", 'the key "A("', KEY),
        ('{"v100": {"(\'A\', 0)": {"null": 1}}}', "throughputs.v100", "the key \"('A', 0)\"", KEY),
        ('{"v100": {"(\'A\', True)": {"null": 1}}}', "throughputs.v100", "the key \"('A', True)\"", KEY),
        ('{"v100": {"(\'A\', 1.0)": {"null": 1}}}', "throughputs.v100", "the key \"('A', 1.0)\"", KEY),
        ('{"v100": {"[\'A\', 1]": {"null": 1}}}', "throughputs.v100", "the key \"['A', 1]\"", KEY),
        ('{"v100": {"(\'\', 1)": {"null": 1}}}', "throughputs.v100", "the key \"('', 1)\"", KEY),
        ('{"v100": {"(\'A\', 1, 2)": {"null": 1}}}', "throughputs.v100", "the key \"('A', 1, 2)\"", KEY),
        ('{"v100": {"exit(3)": {"null": 1}}}', "throughputs.v100", 'the key "exit(3)"', KEY),
        ('{"v100": {"(\'A\', 1)": 4.5}}', "throughputs.v100.('A', 1)", "4.5", ROW),
        (
            '{"v100": {"(\'A\', 1)": {"(\'A\', 1)": [1, 1]}}}', "throughputs.v100.('A', 1)", 'no key "null"',
            'the rate alone under the key "null"',
        ),
        ('{"v100": {"(\'A\', 1)": {"null": -1}}}', "throughputs.v100.('A', 1).null", "-1", RATE),
        ('{"v100": {"(\'A\', 1)": {"null": NaN}}}', "throughputs.v100.('A', 1).null", "NaN", RATE),
        ('{"v100": {"(\'A\', 1)": {"null": Infinity}}}', "throughputs.v100.('A', 1).null", "Infinity", RATE),
        ('{"v100": {"(\'A\', 1)": {"null": true}}}', "throughputs.v100.('A', 1).null", "true", RATE),
        ('{"v100": {"(\'A\', 1)": {"null": "4"}}}', "throughputs.v100.('A', 1).null", '"4"', RATE),
        ('{"v100": {"(\'A\', 1)": {"null": null}}}', "throughputs.v100.('A', 1).null", "null", RATE),
        ('{"v100": {"(\'A\', 1)": {"null": 1, "B": [1, 1]}}}', "throughputs.v100.('A', 1)", 'the key "B"', KEY),
        (
            '{"v100": {"(\'A\', 1)": {"null": 1, "(\'B\', 1)": 2}}}', "throughputs.v100.('A', 1).('B', 1)", "2",
            "a list of two rates in steps/s",
        ),
        (
            '{"v100": {"(\'A\', 1)": {"null": 1, "(\'B\', 1)": [2]}}}', "throughputs.v100.('A', 1).('B', 1)", "[2]",
            "a list of two rates in steps/s",
        ),
        (
            '{"v100": {"(\'A\', 1)": {"null": 1, "(\'B\', 1)": [2, -3]}}}', "throughputs.v100.('A', 1).('B', 1)[1]",
            "-3", RATE,
        ),
        (
            '{"v100": {"(\'A\', 1)": {"null": 1, "(\'B\', 2)": [2, 2]}}}', "throughputs.v100.('A', 1)",
            "a partner ('B', 2)", "partners of the same scale, 1",
        ),
        (
            '{"v100": {"(\'A\', 1)": {"null": 1}, "(\'A\',1)": {"null": 2}}}', "throughputs.v100",
            "a second row ('A',1)", "one row per job type and scale",
        ),
        (
            '{"v100": {"(\'A\', 1)": {"null": 1, "(\'A\', 1)": [1, 1], "(\'A\',1)": [2, 2]}}}',
            "throughputs.v100.('A', 1)", "a second partner ('A',1)", "each partner once",
        ),
    ],
)  # fmt: skip
def test_a_bad_throughput_file_is_refused_with_the_path(
    content: str, path: str, found: str, expected: str
) -> None:
    with refused(path, found, expected):
        read_throughputs(content.encode())


def test_a_rate_too_large_for_a_float_is_refused() -> None:
    with refuses("throughputs.v100.('A', 1).null: found 10000000000..., expected a finite rate..."):
        read_throughputs(b'{"v100": {"(\'A\', 1)": {"null": 1' + b"0" * 400 + b"}}}")


def test_a_key_of_endless_length_is_refused_and_cut_in_the_message() -> None:
    with refuses("throughputs.v100: found the key \"('AAAAAAAAAA...") as caught:
        read_throughputs(json.dumps({"v100": {key("A" * 2000): {"null": 1}}}).encode())
    assert len(str(caught.value)) < 250


def test_strange_names_stay_on_one_line_of_the_message() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_throughputs(
            json.dumps({"v\n100" + "x" * 500: {key("A\n" * 200): {"null": -1}}}).encode()
        )
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250
    assert (caught.value.found, caught.value.expected) == (
        "-1",
        "a finite rate in steps/s, at least 0",
    )


def test_deeply_nested_keys_are_refused_and_not_evaluated() -> None:
    for text_of_key in ("(" * 5000, "-" * 100_000 + "1", "[" * 150 + "]" * 150):
        with refuses("throughputs.v100: found the key..."):
            read_throughputs(json.dumps({"v100": {text_of_key: {"null": 1}}}).encode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"",
            "throughputs: found an empty throughput table, expected Gavel's throughput table in JSON",
        ),
        (
            b"{'v100': 1}",
            "throughputs: found text that is not JSON (..., expected Gavel's throughput table in JSON",
        ),
        (
            b'{"v100":\n"\xff"}',
            "throughputs: found text that is not JSON...",
        ),
    ],
)
def test_a_throughput_file_that_is_no_json_is_refused(data: bytes, message: str) -> None:
    with refuses(message):
        read_throughputs(data)


# Workloads, pools and jobs -----------------------------------------------------------------------------------------


def test_workloads_have_rates_by_pool_and_gpu_count_without_zeros() -> None:
    result = document(job("B"), job("A"), job("C", gpus=2), job("A", gpus=2))
    assert result["workloads"] == {
        "B": {"throughput": {"v100": {"1": 16.0, "2": 30.0}, "k80": {"1": 3.0}}},
        "A": {"throughput": {"v100": {"1": 4.79, "2": 9.1}, "k80": {"1": 1.0}}},
        "C": {"throughput": {"v100": {"2": 0.25}}},
    }
    assert list(result["workloads"]) == ["B", "A", "C"]
    assert result["format"] == "optsched-instance/1"
    assert (result["round"], result["performance"], result["colocation"]) == (
        360.0,
        {"model": "table"},
        [],
    )


def test_gpu_counts_are_in_numerical_order() -> None:
    throughputs = {
        "v100": {key("A", 10): {"null": 5.0}, key("A", 2): {"null": 2.0}, key("A"): {"null": 1.0}}
    }
    result = document(job(), throughputs=throughputs, pools={"v100": 1})
    assert list(result["workloads"]["A"]["throughput"]["v100"]) == ["1", "2", "10"]


def test_a_job_type_with_no_rate_in_the_pools_asked_for_is_imported_without_rates() -> None:
    result = document(job("D"), pools={"v100": 4})
    assert result["workloads"] == {"D": {"throughput": {}}}
    assert result["jobs"][0]["workload"] == "D"


def test_a_scale_without_a_row_is_imported() -> None:
    result = document(job("A", gpus=7), job("A", gpus=16))
    assert [entry["gpus"] for entry in result["jobs"]] == [7, 16]
    assert result["workloads"]["A"]["throughput"]["v100"] == {"1": 4.79, "2": 9.1}


def test_an_unknown_job_type_is_named_with_line_and_neighbour() -> None:
    throughputs = {"v100": {key("ResNet-18 (batch size 64)"): {"null": 1.0}}}
    with refused(
        "trace:3:column 1 (job_type)",
        '"ResNet-18 (batch size 63)"',
        "a job type of the throughput file (did you mean ResNet-18 (batch size 64)?)",
    ):
        document(
            job("ResNet-18 (batch size 64)"), "", job("ResNet-18 (batch size 63)"),
            throughputs=throughputs, pools={"v100": 1},
        )  # fmt: skip
    with refused("trace:1:column 1 (job_type)", '"zzzz"', "a job type of the throughput file"):
        document(old_job("zzzz"))


def test_an_unknown_job_type_beyond_the_jobs_taken_does_no_harm() -> None:
    assert len(document(job(), job("zzzz"), active=1)["jobs"]) == 1


def test_jobs_carry_the_columns_of_the_trace() -> None:
    result = document(job("A", 100, 2, 2.5, -1, 3), "", job("B", "1e3", 1, 1, "-1.000000", "4.25"))
    assert result["jobs"] == [
        {"id": "j0", "workload": "A", "gpus": 2, "steps": 100.0, "weight": 2.5, "arrival": 3.0},
        {"id": "j1", "workload": "B", "gpus": 1, "steps": 1000.0, "weight": 1.0, "arrival": 4.25},
    ]


def test_jobs_of_the_old_format_have_weight_one_and_no_deadline() -> None:
    result = document(old_job("A", 5, 2, 1.5))
    assert result["jobs"] == [
        {"id": "j0", "workload": "A", "gpus": 2, "steps": 5.0, "weight": 1.0, "arrival": 1.5}
    ]  # fmt: skip


def test_pools_keep_their_order_and_take_the_gpu_type_in_upper_case() -> None:
    result = document(job(), pools={"v100_unconsolidated": 8, "k80": 4, "v100": 0}, gpus_per_node=4)
    assert result["cluster"] == {
        "pools": [
            {
                "name": "v100_unconsolidated",
                "gpu": "V100_UNCONSOLIDATED",
                "nodes": 2,
                "gpus_per_node": 4,
            },
            {"name": "k80", "gpu": "K80", "nodes": 1, "gpus_per_node": 4},
            {"name": "v100", "gpu": "V100", "nodes": 0, "gpus_per_node": 4},
        ]
    }
    assert result["workloads"]["A"]["throughput"]["v100_unconsolidated"] == {"1": 4.5}


@pytest.mark.parametrize(("gpus", "sizes"), [(10, [4, 4, 2]), (3, [3]), (8, [4, 4])])
def test_a_rest_makes_a_smaller_last_node_with_the_usual_name(gpus: int, sizes: list[int]) -> None:
    instance = Instance.from_document(document(job(), pools={"v100": gpus}, gpus_per_node=4))
    pool = instance.cluster.pools[0]
    assert pool.node_gpus.tolist() == sizes
    assert [pool.node_name(row) for row in range(len(sizes))] == [
        f"v100-{row}" for row in range(len(sizes))
    ]


def test_the_name_is_passed_on() -> None:
    assert document(job())["name"] == "gavel"
    assert document(job(), name="physical")["name"] == "physical"


def test_an_unknown_pool_lists_the_worker_types() -> None:
    known = "one of the worker types of the throughput file: k80, v100, v100_unconsolidated"
    with refused("pools", '"a100"', known):
        document(job(), pools={"v100": 1, "a100": 4})
    with refused("reference", '"a100"', known):
        document(job(), reference="a100")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"pools": {}},
            "pools: found none, expected GPUs for at least one of the worker types k80, v100, v100_unconsolidated",
        ),
        (
            {"pools": {"v100": -1}},
            "pools['v100']: found -1, expected a whole number from 0 to 2147483648",
        ),
        (
            {"pools": {"v100": 2.5}},
            "pools['v100']: found 2.5, expected a whole number from 0 to 2147483648",
        ),
        (
            {"pools": {"v100": True}},
            "pools['v100']: found True, expected a whole number from 0 to 2147483648",
        ),
        (
            {"gpus_per_node": 0},
            "gpus_per_node: found 0, expected a whole number from 1 to 2147483648",
        ),
        ({"active": 0}, "active: found 0, expected a whole number from 1 to 2147483648"),
        ({"active": 3}, "active: found 3, expected at most 2, the number of jobs in the trace"),
        (
            {"active": 1, "at": 0.0},
            "active and at exclude each other: give the number of jobs or the time, not both",
        ),
        ({"at": math.nan}, "at: found nan, expected a finite time in seconds"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(options: dict[str, Any], message: str) -> None:
    with refuses(message, UsageError):
        document(job(), job(), **options)


# Which jobs, and the clock -----------------------------------------------------------------------------------------

ARRIVALS = (5, 10, 10, 20)


def taken(**options: Any) -> tuple[list[str], float]:
    result = document(
        *(job("A" if time < 20 else "B", arrival=time) for time in ARRIVALS), **options
    )
    return [entry["id"] for entry in result["jobs"]], result["now"]


def test_active_takes_the_first_jobs_at_the_arrival_of_the_last() -> None:
    assert taken(active=1) == (["j0"], 5.0)
    assert taken(active=2) == (["j0", "j1"], 10.0)
    assert taken(active=4) == (["j0", "j1", "j2", "j3"], 20.0)


def test_at_takes_what_has_arrived_by_then() -> None:
    assert taken(at=4.5) == ([], 4.5)
    assert taken(at=10) == (["j0", "j1", "j2"], 10.0)
    assert taken(at=19.9) == (["j0", "j1", "j2"], 19.9)
    assert taken(at=100.0) == (["j0", "j1", "j2", "j3"], 100.0)


def test_without_either_all_jobs_are_taken_and_the_clock_stands_at_the_first() -> None:
    assert taken() == (["j0", "j1", "j2", "j3"], 5.0)


def test_only_the_workloads_of_jobs_taken_are_written() -> None:
    lines = [job("A"), job("B", arrival=1)]
    assert list(document(*lines, active=1)["workloads"]) == ["A"]
    assert document(*lines, at=-1.0)["workloads"] == {}


# Deadlines ---------------------------------------------------------------------------------------------------------


def deadline(line: str, throughputs: Table | None = None, **options: Any) -> float | None:
    (entry,) = document(line, throughputs=throughputs, **options)["jobs"]
    return entry.get("deadline")


def test_a_deadline_is_a_multiple_of_the_duration_on_v100() -> None:
    assert deadline(job("B", 160, slo=1.5, arrival=7)) == 7 + 1.5 * 160 / 16
    assert deadline(job("B", 160, gpus=2, slo=2, arrival=7)) == 7 + 2 * 160 / 30
    assert deadline(job("B", 160, slo="-1")) is None


def test_the_reference_counts_even_when_it_is_no_pool() -> None:
    assert deadline(job("B", 160, slo=2), pools={"k80": 1}) == 20.0
    assert deadline(job("B", 160, slo=2), pools={"v100": 1}, reference="k80") == 2 * 160 / 3


def test_v100_is_the_reference_even_when_another_worker_type_is_faster() -> None:
    throughputs = {"h100": {key("A"): {"null": 9.0}}, "v100": {key("A"): {"null": 4.0}}}
    assert deadline(job("A", 80, slo=3), throughputs, pools={"h100": 1}) == 60.0


def test_without_a_rate_on_v100_the_fastest_worker_type_is_the_reference() -> None:
    throughputs = {
        "slow": {key("A"): {"null": 2.0}},
        "fast": {key("A"): {"null": 8.0}},
        "zero": {key("A"): {"null": 0}},
    }
    assert deadline(job("A", 80, slo=3), throughputs, pools={"slow": 1}) == 30.0
    assert deadline(job("D", 70, slo=2), pools={"v100": 1}) == 2 * 70 / 7


def test_a_job_that_runs_nowhere_has_no_deadline() -> None:
    assert deadline(job("A", gpus=7, slo=2)) is None
    assert deadline(job("A", gpus=7, slo=2), reference="k80") is None


def test_an_slo_without_a_rate_on_the_reference_asked_for_is_refused() -> None:
    with refused(
        "trace:1:column 9 (SLO)",
        'an SLO on "B" with 2 GPUs, which has no rate on k80',
        "a reference on which the job can run: v100",
    ):
        deadline(job("B", gpus=2, slo=2), reference="k80")


def test_a_deadline_beyond_all_numbers_is_refused() -> None:
    with refused(
        "trace:1:column 9 (SLO)",
        "1e+300, with a deadline beyond all numbers",
        "an SLO with a finite deadline",
    ):
        deadline(job("A", "1e300", slo="1e300"))


# Pairs -------------------------------------------------------------------------------------------------------------


def entry(
    first: str, second: str, pool: str, gpus: int, one: float, other: float
) -> dict[str, Any]:
    return {"workloads": [first, second], "pool": pool, "gpus": gpus, "throughput": [one, other]}


def test_pairs_stand_once_per_pool_and_scale_in_the_order_of_the_workloads() -> None:
    throughputs = table()
    throughputs["v100"][key("B")][key("B")] = [8.0, 8.0]
    lines = [job("B"), job("A", gpus=2), job("A")]
    assert document(*lines, throughputs=throughputs, pairs=True)["colocation"] == [
        entry("B", "B", "v100", 1, 8.0, 8.0),
        entry("B", "A", "v100", 1, 10.0, 4.0),
        entry("A", "A", "v100", 1, 2.5, 2.5),
        entry("B", "A", "v100", 2, 12.0, 5.0),
        entry("B", "A", "k80", 1, 2.5, 0.5),
        entry("A", "A", "k80", 1, 0.4, 0.4),
    ]
    assert document(*lines, throughputs=throughputs)["colocation"] == []


def test_pairs_where_one_of_the_two_stands_still_are_left_out() -> None:
    throughputs = table()
    throughputs["v100"][key("A")][key("B")] = [4.0, 0.0]
    throughputs["v100"][key("B")] |= {key("A"): [0.0, 4.0], key("B"): [0.0, 0.0]}
    lines = [job("A"), job("B")]
    assert document(*lines, throughputs=throughputs, pools={"v100": 1}, pairs=True)[
        "colocation"
    ] == [entry("A", "A", "v100", 1, 2.5, 2.5)]


def test_pairs_at_scales_of_jobs_not_taken_are_left_out() -> None:
    lines = [job("A"), job("B"), job("A", gpus=2, arrival=1)]
    throughputs = table()
    throughputs["v100"][key("B")].pop(key("B"))
    pairs = [
        {
            pair["gpus"]
            for pair in document(*lines, throughputs=throughputs, pairs=True, active=count)[
                "colocation"
            ]
        }
        for count in (2, 3)
    ]
    assert pairs == [{1}, {1, 2}]


def test_pairs_only_of_job_types_and_pools_taken() -> None:
    assert document(job("A"), job("B", arrival=1), pools={"v100": 1}, pairs=True, active=1)[
        "colocation"
    ] == [entry("A", "A", "v100", 1, 2.5, 2.5)]


@pytest.mark.parametrize(
    ("back", "shown"),
    [([10.0, 4.000001], "[10.0, 4.000001]"), ([4.0, 10.0], "[4.0, 10.0]"), (None, "[0.0, 0.0]")],
)
def test_directions_that_disagree_are_refused(back: list[float] | None, shown: str) -> None:
    throughputs = table()
    throughputs["v100"][key("B")].pop(key("B"))
    if back is None:
        del throughputs["v100"][key("B")][key("A")]
    else:
        throughputs["v100"][key("B")][key("A")] = back
    with refused(
        "throughputs.v100.('A', 1).('B', 1)",
        f"[4.0, 10.0], but {shown} the other way round",
        "the same two rates in both directions (0 counts as unknown; relative difference at most 1e-09)",
    ):
        document(job("A"), job("B"), throughputs=throughputs, pairs=True)
    assert document(job("A"), job("B"), throughputs=throughputs)["colocation"] == []


def test_a_pair_of_a_type_with_itself_has_equal_rates() -> None:
    with refuses("throughputs.v100.('B', 1).('B', 1): found [8.0, 0.0], but..."):
        document(job("B"), pairs=True)


def test_directions_may_differ_by_rounding() -> None:
    throughputs = table()
    throughputs["v100"][key("B")] |= {key("A"): [10.0, 4.0 * (1 + 5e-10)], key("B"): [0.0, 0.0]}
    assert (
        len(
            document(job("A"), job("B"), throughputs=throughputs, pools={"v100": 1}, pairs=True)[
                "colocation"
            ]
        )
        == 2
    )


# The real files ----------------------------------------------------------------------------------------------------

DATA = SHARED / "data" / "gavel"
PHYSICAL = "physical_cluster_throughputs.json"
SIMULATION = "simulation_throughputs.json"
real = needs(DATA)


def real_document(
    throughputs: str, trace: str, pools: dict[str, int], **options: Any
) -> dict[str, Any]:
    return import_gavel(
        (DATA / throughputs).read_bytes(), (DATA / "traces" / trace).read_bytes(), pools, **options
    )


@real
@pytest.mark.parametrize(("trace", "count"), [("max_min_fairness", 96), ("minimize_makespan", 100)])
def test_the_physical_traces_load(trace: str, count: int) -> None:
    pools = {"v100": 8, "p100": 16, "k80": 24}
    result = real_document(PHYSICAL, f"physical_cluster/{trace}.trace", pools, gpus_per_node=4)
    instance = Instance.from_document(result)
    assert len(instance.jobs) == count
    assert instance.cluster.gpus(0.0).tolist() == [8, 16, 24]
    raw = json.loads((DATA / PHYSICAL).read_bytes())
    rows = (DATA / "traces" / "physical_cluster" / f"{trace}.trace").read_text().splitlines()
    for number, row in enumerate(rows):
        cells = row.split("\t")
        job_view = instance.jobs[f"j{number}"]
        assert (job_view.workload, job_view.gpus[0], job_view.steps) == (
            cells[0],
            int(cells[6]),
            float(cells[5]),
        )
        assert (job_view.arrival, job_view.deadline, job_view.weight) == (
            float(cells[9]),
            None,
            1.0,
        )
        for pool in pools:
            expected = raw[pool][f"('{cells[0]}', {cells[6]})"]["null"]
            rates = result["workloads"][cells[0]]["throughput"].get(pool, {})
            assert rates.get(cells[6], 0.0) == expected
    assert np.all(instance.rates.rate > 0)


@real
def test_an_old_trace_loads_with_scales_that_have_no_row() -> None:
    result = real_document(
        SIMULATION, "msr_seed0/ee9e8c.trace", {"v100": 36, "p100": 36, "k80": 36}
    )
    instance = Instance.from_document(result)
    assert len(instance.jobs) == 2000
    assert {7, 16, 20, 32} <= set(instance.jobs_table.gpus_min.tolist())
    assert result["now"] == 0.0
    assert {len(workload["throughput"]) for workload in result["workloads"].values()} <= {2, 3}
    assert all(
        "7" not in rates for w in result["workloads"].values() for rates in w["throughput"].values()
    )


@pytest.mark.oracle
@real
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.study)])
def test_every_trace_and_both_tables_import(every: bool) -> None:
    for number, path in enumerate(sorted((DATA / "traces").glob("*/*.trace"))):
        jobs = sum(1 for line in path.read_text().splitlines() if line.strip())
        for throughputs in (
            (PHYSICAL, SIMULATION) if every else ((PHYSICAL, SIMULATION)[number % 2],)
        ):
            result = real_document(
                throughputs, f"{path.parent.name}/{path.name}", {"v100": 4, "k80_unconsolidated": 4}
            )
            assert len(Instance.from_document(result).jobs) == jobs


@real
def test_the_pairs_of_the_simulation_table_load() -> None:
    pools = {"v100": 4, "p100": 4, "k80": 4}
    result = real_document(SIMULATION, "msr_seed0/ee9e8c.trace", pools, pairs=True)
    instance = Instance.from_document(result)
    raw = json.loads((DATA / SIMULATION).read_bytes())
    types = list(result["workloads"])
    positive = {
        (pool, frozenset((first, second)))
        for pool in pools
        for first in types
        for second in types
        if min(raw[pool][key(first)].get(key(second), [0.0])) > 0
    }
    entries = result["colocation"]
    assert {(pair["pool"], frozenset(pair["workloads"])) for pair in entries} == positive
    assert len(entries) == len(positive) == len(instance.colocation)
    assert {pair["gpus"] for pair in entries} == {1}
    for pair in entries:
        first, second = pair["workloads"]
        assert raw[pair["pool"]][key(first)][key(second)] == pair["throughput"]


@real
def test_a_known_rate_is_spelled_as_in_the_file() -> None:
    raw = json.loads((DATA / SIMULATION).read_bytes())
    result = real_document(
        SIMULATION, "physical_cluster/max_min_fairness.trace", {"v100": 1, "k80": 1}, active=1
    )
    assert result["workloads"] == {
        "ResNet-18 (batch size 128)": {
            "throughput": {
                pool: {
                    str(scale): raw[pool][key("ResNet-18 (batch size 128)", scale)]["null"]
                    for scale in (1, 2, 4, 8)
                }
                for pool in ("v100", "k80")
            },
            "parameters": {"profile": "ResNet-18", "batch_per_gpu": 128.0},
        }
    }
    assert result["jobs"] == [
        {
            "id": "j0", "workload": "ResNet-18 (batch size 128)", "gpus": 4, "steps": 925982.0, "weight": 1.0,
            "arrival": 0.0,
        }
    ]  # fmt: skip
