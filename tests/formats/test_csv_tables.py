"""Tables in CSV as instances: what spreadsheets write is read, and every error names file, line and column."""

from __future__ import annotations

import csv
import io
import re
import shlex
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses, reported, stated

from optsched.errors import InvalidArgument, InvalidInput

# Private names: the readers and tables of one format, below its import
from optsched.formats.csv import JOBS as JOB_COLUMNS
from optsched.formats.csv import POOLS as POOL_COLUMNS
from optsched.formats.csv import RATES as RATE_COLUMNS
from optsched.formats.csv import import_csv
from optsched.formats.tables import Kind, read_table
from optsched.instance import Instance

JOBS = "id,workload,gpus,steps,weight,arrival,deadline,tenant\na,net,2,1000,1.5,10,7200,x\nb,small,,,,,,\n"
RATES = "workload,pool,gpus,throughput\nnet,v100,1,6\nnet,v100,2,10.5\nsmall,k80,,0.5\n"
POOLS = "name,nodes,gpus_per_node,gpu,gpu_memory\nv100,2,4,V100,16\nk80,8,,,\n"


def imported(
    jobs: str | bytes = JOBS, rates: str | bytes = RATES, pools: str | bytes = POOLS, **more: Any
) -> Instance:
    texts = {"jobs.csv": jobs, "rates.csv": rates, "pools.csv": pools}
    with TemporaryDirectory() as folder, chdir(folder):
        for name, text in texts.items():
            Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return import_csv("jobs.csv", "rates.csv", pool_table="pools.csv", **more)


def test_everything_lands_where_it_belongs() -> None:
    document = imported(name="mine", now=60, round=30).to_document()
    assert (document["name"], document["now"], document["round"]) == ("mine", 60, 30)
    v100, k80 = document["cluster"]["pools"]
    assert v100 == {"name": "v100", "gpu": "V100", "nodes": 2, "gpus_per_node": 4, "gpu_memory": 16}
    assert k80 == {"name": "k80", "gpu": "k80", "nodes": 8, "gpus_per_node": 1}
    assert document["workloads"] == {
        "net": {"throughput": {"v100": {"1": 6, "2": 10.5}}}, "small": {"throughput": {"k80": {"1": 0.5}}}
    }  # fmt: skip
    assert [tenant["name"] for tenant in document["tenants"]] == ["x"]
    assert document["jobs"] == [
        {
            "id": "a", "workload": "net", "gpus": 2, "steps": 1000, "weight": 1.5, "arrival": 10, "deadline": 7200,
            "deadline_kind": "hard", "tenant": "x",
        },
        {"id": "b", "workload": "small", "gpus": 1, "steps": 1, "arrival": 0},
    ]  # fmt: skip


def test_the_file_of_jobs_gives_the_name(tmp_path: Path) -> None:
    team = tmp_path / "team.b.csv"
    team.write_text(JOBS)
    tables: dict[str, Any] = {"rates": RATES.encode(), "pool_table": POOLS.encode()}
    assert import_csv(team, **tables).name == "team.b"
    assert import_csv(JOBS.encode(), **tables).name == "csv"


def test_a_pool_without_any_rate_is_told(caplog: pytest.LogCaptureFixture) -> None:
    imported(pools="name,nodes\nv100,2\nk80,8\n")
    assert not caplog.records
    imported(pools="name,nodes\nv100,2\nk80,8\nt4,1\n")
    by_type = RATES.replace("pool", "gpu")
    imported(rates=by_type, pools="name,nodes,gpu\na,2,v100\nb,8,k80\nc,1,t4\n")
    assert [record.getMessage() for record in caplog.records] == [
        f"pool {name} has no rate in rates.csv: no job can run there" for name in ("t4", "c")
    ]


@pytest.mark.parametrize("line", [b"x" * 2**21, b"1," * 2**20, b'"' * 2**21])
def test_a_line_without_end_is_refused_before_it_is_copied(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("csv.reader", lambda *_, **__: pytest.fail("the line was read"))
    for data, place in (
        (line, "jobs.csv:1"),
        (b"workload\nnet\n" + line + b"\nnet\n", "jobs.csv:3"),
    ):
        with pytest.raises(InvalidInput) as caught:
            read_table(data, "jobs.csv", JOB_COLUMNS, ["workload"])
        assert (caught.value.path, caught.value.found) == (
            place,
            "a line of more than 1,048,576 bytes",
        )


def test_counts_that_look_like_thousands(caplog: pytest.LogCaptureFixture) -> None:
    imported("workload,steps\nnet,400.000\nsmall,\n")
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "jobs.csv: column steps: 400.000 is read as 400.0: write numbers without thousands separators"
    ]
    caplog.clear()
    imported("workload,steps\nnet,400.000\nsmall,12.5\n")
    imported("workload,weight\nnet,1.500\nsmall,\n")
    assert not caplog.records


def test_mistakes_of_all_tables_are_told_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        imported("workload,prio,urgency\nnet,1,2\n")
    assert [error.found for error in caught.value.one_by_one()] == [
        'an unknown column "prio"',
        'an unknown column "urgency"',
    ]
    with pytest.raises(InvalidInput) as caught:
        imported(
            "id,workload\na,Net\nb,net\n",
            "workload,pool,throughput\nnet,V100,6\n",
            "name,nodes\nv100,2\n",
        )
    assert str(caught.value).splitlines() == [
        'rates.csv:2:pool: found "V100", expected one of the pools v100; did you mean v100?',
        'jobs.csv:2:workload: found "Net", expected one of the workloads of rates.csv: net; '
        "did you mean net?",
    ]


def test_few_columns_are_enough() -> None:
    instance = imported("workload\nnet\nsmall\nnet\n")
    assert [job.id for job in instance.jobs] == ["j0", "j1", "j2"]
    assert instance.jobs_table.weight.tolist() == [1, 1, 1]


def test_elastic_jobs_and_gpu_types() -> None:
    instance = imported(
        "workload,gpus,gpus_min,gpus_max\nnet,,1,4\nnet,2,,\n",
        "workload,gpu,throughput\nnet,V100,3\nsmall,k80,1\n",
    )
    assert [job.gpus for job in instance.jobs] == [(1, 4), (2, 2)]
    assert instance.to_document()["workloads"]["net"] == {"throughput": {"V100": {"1": 3}}}


def test_pools_may_be_documents() -> None:
    tables = JOBS.encode(), RATES.encode()
    pools = [
        {"name": "v100", "nodes": 1, "gpus_per_node": 2},
        {"name": "k80", "nodes": 1, "gpus_per_node": 1},
    ]
    assert import_csv(*tables, pools).cluster.gpus(0).tolist() == [2, 1]
    with refuses('cluster.pools[1].name: found "v100" a second time'):
        import_csv(*tables, [pools[0], *pools])


# --- what spreadsheets write ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("quoted", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_dialects(delimiter: str, end: str, mark: bytes, quoted: int) -> None:
    def written(text: str) -> bytes:
        paper = io.StringIO()
        rows = list(csv.reader(io.StringIO(text)))
        csv.writer(paper, delimiter=delimiter, lineterminator=end, quoting=quoted).writerows(rows)  # type: ignore[arg-type]
        return mark + paper.getvalue().encode()

    instance = imported(written(JOBS), written(RATES), written(POOLS))
    assert instance.sha256 == imported().sha256


def test_empty_lines_spaces_and_a_missing_last_end() -> None:
    jobs = (
        "\n , ,,,,,,\n" + JOBS.replace("\n", "\n\n").replace(",", " , ").rstrip() + "\n,,,,,,,\n\n"
    )
    assert imported(jobs, RATES.rstrip()).sha256 == imported().sha256


def test_quotes_hold_delimiters_ends_of_lines_and_quotes() -> None:
    name = 'a "big", odd;\nnet'
    quoted = '"a ""big"", odd;\nnet"'
    jobs = f"workload,steps\n{quoted},5\n{quoted},x\n"
    with refuses('jobs.csv:4:steps: found "x", expected a number'):
        imported(jobs, f"workload,pool,throughput\n{quoted},v100,2\n")
    instance = imported(jobs.replace("x", "6"), f"workload,pool,throughput\n{quoted},v100,2\n")
    assert [workload.name for workload in instance.workloads] == [name]


def test_a_header_in_quotes_does_not_choose_the_delimiter() -> None:
    table = read_table(b'"a;;;b",c\n1,2\n', "t.csv", {"a;;;b": "whole", "c": "whole"}, ["c"])
    assert table.documents()[0] == {"a;;;b": 1, "c": 2}


TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")),
    min_size=1,
    max_size=8,
)


@given(
    st.lists(st.tuples(TEXT, st.floats(0, 1e9), st.integers(1, 9)), min_size=1, max_size=8),
    st.sampled_from(",;\t"),
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(rows: list[tuple[str, float, int]], delimiter: str) -> None:
    columns = {"text": "text", "number": "number", "whole": "whole"}
    paper = io.StringIO()
    csv.writer(paper, delimiter=delimiter).writerows([list(columns), *rows])
    table = read_table(paper.getvalue().encode(), "t.csv", columns, list(columns))  # type: ignore[arg-type]
    assert [tuple(row.values()) for row in table.documents()] == rows
    assert table.line.tolist() == list(range(2, len(rows) + 2))


# --- errors --------------------------------------------------------------------------------------------------------

HEAD = "id,workload,gpus,steps,weight,arrival,deadline,tenant\n"
REMEDY = "; --column says what a column means, --ignore-others ignores columns"
WRONG_JOBS = {
    "empty": ("", "jobs.csv: found an empty file, expected a first line with the columns, such as workload"),
    "blank": ("\n \n", "jobs.csv: found an empty file, expected a first line with the columns, such as workload"),
    "no rows": ("workload\n", "jobs.csv: found no line below the first, expected at least one job"),
    "unknown column": (
        "workload,prio\nnet,1\n",
        'jobs.csv:1: found an unknown column "prio", expected some of id, workload, gpus, ...'),
    "thousands": (
        "workload;steps\nnet;400,000\n",
        'jobs.csv:2:steps: found "400,000", expected a number, without thousands separators'),
    "millions": (
        "workload;steps\nnet;1.400.000\n",
        'jobs.csv:2:steps: found "1.400.000", expected a number, without thousands separators'),
    "a spreadsheet": (b"PK\x03\x04\x14\0", "jobs.csv: found a spreadsheet, or an archive, expected text: save..."),
    "no near column": ("workload,notes\nnet,1\n",
        'jobs.csv:1: found an unknown column "notes", expected some of id, workload, gpus, gpus_min, '
        "gpus_max, steps, weight, arrival, deadline, tenant" + REMEDY),
    "near column": ("workload,step\nnet,1\n",
        'jobs.csv:1: found an unknown column "step", expected some of id, workload, gpus, gpus_min, '
        "gpus_max, steps, weight, arrival, deadline, tenant (did you mean steps?)" + REMEDY),
    "column without a name": ("workload,,steps\nnet,,1\n",
        "jobs.csv:1: found no name in column 2, expected some of..."),
    "column twice": (
        "workload,steps,steps\nnet,1,2\n", "jobs.csv:1: found the column steps a second time, expected each column..."),
    "no workload column": ("\nid,steps\na,1\n", "jobs.csv:2: found no column workload, expected one, beside id, steps"),
    "no workload": (HEAD + "a,,1,,,,,\n", "jobs.csv:2:workload: found nothing, expected a text"),
    "unknown workload": (
        HEAD + "a,nut,1,,,,,\n",
        'jobs.csv:2:workload: found "nut", expected one of the workloads of rates.csv: net, small; did '
        'you mean net?'),
    "too few cells": (HEAD + "a,net\n", "jobs.csv:2: found 2 cells, expected 8, as in the first line"),
    "too many cells": ("workload\nnet,1\n", "jobs.csv:2: found 2 cells, expected 1, as in the first line"),
    "id twice": (HEAD + "a,net,,,,,,\n\na,net,,,,,,\n",
        'jobs.csv:4:id: found "a" a second time, after line 2, expected names that differ'),
    "gpus of text": (HEAD + "a,net,two,,,,,\n", 'jobs.csv:2:gpus: found "two", expected a whole number'),
    "half a gpu": (HEAD + "a,net,1.5,,,,,\n", 'jobs.csv:2:gpus: found "1.5", expected a whole number'),
    "no gpu": (HEAD + "a,net,0,,,,,\n", "jobs.csv:2:gpus: found 0, expected a number of at least 1"),
    "steps of text": (HEAD + "a,net,,many,,,,\n", 'jobs.csv:2:steps: found "many", expected a number'),
    "decimal comma": (
        "workload;steps\nnet;1,5\n", 'jobs.csv:2:steps: found "1,5", expected a number with a point, not a comma'),
    "underscores": (HEAD + "a,net,,1_000,,,,\n", 'jobs.csv:2:steps: found "1_000", expected a number'),
    "infinite steps": (HEAD + "a,net,,inf,,,,\n", 'jobs.csv:2:steps: found "inf", expected a number'),
    "steps below 0": (HEAD + "a,net,,-1,,,,\n", "jobs.csv:2:steps: found -1.0, expected a number of at least 0"),
    "weight 0": (HEAD + "a,net,,,0,,,\n", "jobs.csv:2:weight: found 0.0, expected a number above 0"),
    "arrival": (
        HEAD + "a,net,,,,noon,,\n",
        'jobs.csv:2:arrival: found "noon", expected a number of seconds, or a duration such as 90s, 5m, 2h or 1d',
    ),
    "deadline before arrival": (HEAD + "a,net,,,,9,5,\n", "jobs.csv:2:deadline: found 5..."),
    "one end of a range": (
        "workload,gpus_min,gpus_max\nnet,1,\n",
        "jobs.csv:2:gpus_max: found nothing, expected a whole number, as the other end of the range is given"),
    "other end of a range": ("workload,gpus_max\nnet,1\n", "jobs.csv:2:gpus_min: found nothing, expected a whole..."),
    "range and gang": (
        "workload,gpus,gpus_min,gpus_max\nnet,1,1,2\n",
        "jobs.csv:2:gpus: found 1 beside a range, expected gpus or a range, not both"),
    "range upside down": ("workload,gpus_min,gpus_max\nnet,4,2\n", "jobs.csv:2:gpus_max: found min 4 above max 2"),
    "open quote": (
        'workload,steps\n"net,1\nsmall,2\n', "jobs.csv:2: found text that is not CSV (unexpected end of data)"),
    "not UTF-8": (b"workload\nn\xe4t\n", "jobs.csv:2: found the byte 0xe4, expected text in UTF-8"),
    "UTF-16": ("workload\nnet\n".encode("utf-16"), "jobs.csv:1: found the byte 0xff, expected text in UTF-8"),
}  # fmt: skip
WRONG_RATES = {
    "no place": ("workload,throughput\nnet,1\n", "rates.csv:1: found neither column pool nor gpu, expected one of"),
    "two places": ("workload,pool,gpu,throughput\nnet,v100,V100,1\n", "rates.csv:1: found both columns pool and gpu"),
    "empty place": ("workload,pool,throughput\nnet,,1\n", "rates.csv:2:pool: found nothing, expected a text"),
    "unknown pool": (
        "workload,pool,throughput\nnet,v1000,1\n",
        'rates.csv:2:pool: found "v1000", expected one of the pools v100, k80'),
    "unknown type": (
        "workload,gpu,throughput\nnet,v100,1\n",
        'rates.csv:2:gpu: found "v100", expected one of the GPU types V100, k80'),
    "negative": (RATES + "net,k80,1,-1\n", "rates.csv:5:throughput: found -1.0, expected 0, or a rate in steps/s from"),
    "nan": (RATES + "net,k80,1,nan\n", 'rates.csv:5:throughput: found "nan", expected a number'),
    "absurd": (RATES + "net,k80,1,1e200\n", "rates.csv:5:throughput: found 1e+200, expected 0, or a rate in steps/s"),
    "none": (RATES + "net,k80,1,\n", "rates.csv:5:throughput: found nothing, expected a number, 0 where"),
    "0 GPUs": (RATES + "net,k80,0,1\n", "rates.csv:5:gpus: found 0, expected a whole number of GPUs, at least 1"),
    "huge count": (RATES + "net,k80,9999999999,1\n", "rates.csv:5:gpus: found 9999999999, expected a whole number of"),
    "twice": (
        RATES + "net,v100,2,11\n",
        'rates.csv:5: found "net", "v100", gpus 2 a second time, expected one rate for each'),
    "twice by default": (RATES + "small,k80,1,11\n", 'rates.csv:5: found "small", "k80", gpus 1 a second time'),
    "no rows": ("workload,pool,throughput\n", "rates.csv: found no line below the first, expected at least one rate"),
}  # fmt: skip
WRONG_POOLS = {
    "no name": ("name,nodes\n,2\n", "pools.csv:2:name: found nothing, expected a text"),
    "no nodes": ("name\nv100\n", "pools.csv:1: found no column nodes, expected one, beside name"),
    "nodes of text": (
        "name,nodes\nv100,many\n",
        'pools.csv:2:nodes: found "many", expected a whole number',
    ),
    "nodes below 0": (
        "name,nodes\nv100,2\nk80,-2\n",
        "pools.csv:3:nodes: found -2, expected a number of at least 0",
    ),
    "twice": (
        "name,nodes\nv100,2\nk80,1\nv100,2\n",
        'pools.csv:4:name: found "v100" a second time, after line 2, expected names',
    ),
    "memory": (
        POOLS + "t4,1,1,T4,0\n",
        "pools.csv:4:gpu_memory: found 0.0, expected a number above 0",
    ),
}


@pytest.mark.parametrize("name", WRONG_JOBS)
def test_wrong_jobs(name: str) -> None:
    text, message = WRONG_JOBS[name]
    with refuses(message):
        imported(jobs=text)


@pytest.mark.parametrize("name", WRONG_RATES)
def test_wrong_rates(name: str) -> None:
    text, message = WRONG_RATES[name]
    with refuses(f"{message}..."):
        imported(rates=text)


@pytest.mark.parametrize("name", WRONG_POOLS)
def test_wrong_pools(name: str) -> None:
    text, message = WRONG_POOLS[name]
    with refuses(f"{message}..."):
        imported(pools=text)


def test_all_wrong_cells_are_told_at_once() -> None:
    jobs = "workload,gpus,steps\nnet,two,x\nnet,1\nsmall,1,5\nnet,1.5,7\n,1,1\n"
    with refuses('jobs.csv:2:gpus: found "two", expected a whole number') as caught:
        imported(jobs=jobs)
    assert isinstance(caught.value, InvalidInput)
    assert [(error.path, error.found) for error in caught.value.one_by_one()] == [
        ("jobs.csv:2:gpus", '"two"'),
        ("jobs.csv:2:steps", '"x"'),
        ("jobs.csv:3", "2 cells"),
        ("jobs.csv:5:gpus", '"1.5"'),
        ("jobs.csv:6:workload", "nothing"),
    ]
    assert str(caught.value).splitlines() == [str(error) for error in caught.value.one_by_one()]


def test_jobs_without_a_rate_for_their_gpus_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    imported(jobs="id,workload,gpus\na,net,1\nb,net,3\nc,net,3\n")
    told = [record.getMessage() for record in caplog.records if "nowhere" in record.getMessage()]
    assert len(told) == 1 and told[0].startswith("2 of 3 jobs can run nowhere, such as b: ")


def test_what_people_call_a_column_is_a_hint() -> None:
    with refuses('jobs.csv:1: found an unknown column "Job Name"...') as caught:
        imported(jobs="Job Name,workload\na,net\n")
    assert "(did you mean id?)" in str(caught.value)


def test_columns_with_other_names() -> None:
    odd = JOBS.replace("id,workload,gpus", "Job = Name,Model,# GPUs")
    columns = {"Job = Name": "id", "model": "workload", "# GPUs": "gpus"}
    assert imported(jobs=odd, columns=columns).sha256 == imported().sha256
    noted = odd.replace("\n", ",x\n").replace(",x\n", ",Notes\n", 1)
    assert imported(jobs=noted, columns=columns, ignore_others=True).sha256 == imported().sha256
    with refuses('jobs.csv:1: found an unknown column "Notes"...'):
        imported(jobs=noted, columns=columns)
    with refuses('jobs.csv:3:# GPUs: found "two", expected a whole number'):
        imported(jobs=odd.replace("b,small,", "b,small,two"), columns=columns)
    with refuses('columns: found "Stepz", expected a column of...', InvalidArgument):
        imported(columns={"Stepz": "steps"}, ignore_others=True)
    with refuses('columns: found "wrkload", expected one of...', InvalidArgument):
        imported(columns={"Model": "wrkload"})


def test_ignored_columns_are_listed_but_misspelled_ones_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for typo in ("step", "wieght"):
        with refuses(f'jobs.csv:1: found an unknown column "{typo}"...'):
            imported(jobs=f"workload,{typo}\nnet,1\n", ignore_others=True)
    assert not caplog.records
    imported(jobs="workload,gpus,gpu,notes\nnet,1,V100,x\n", ignore_others=True)
    assert [r.getMessage() for r in caplog.records] == ["jobs.csv: ignored columns: gpu, notes"]


def test_cells_that_only_the_instance_refuses_are_told_at_once() -> None:
    jobs = "id,workload,gpus,steps,weight,arrival,deadline\na,net,2,-1,0,10,7200\nb,small,,,,9,5\nb,small,0,,1,,\n"
    with refuses("jobs.csv:2:steps: found -1.0...") as caught:
        imported(jobs=jobs)
    assert isinstance(caught.value, InvalidInput)
    assert [error.path.removeprefix("jobs.csv:") for error in caught.value.one_by_one()] == [
        "2:steps", "2:weight", "3:deadline", "4:id", "4:gpus",
    ]  # fmt: skip
    with refuses("pools.csv:2:nodes: found -1...") as caught:
        imported(pools="name,nodes,gpu_memory\nv100,-1,0\nk80,1,-5\n")
    assert [error.path for error in caught.value.one_by_one()] == [
        "pools.csv:2:nodes", "pools.csv:2:gpu_memory", "pools.csv:3:gpu_memory",
    ]  # fmt: skip
    with refuses('rates.csv:2:pool: found "a"...') as caught:
        imported(rates="workload,pool,throughput\nnet,a,1\nsmall,b,1\n")
    assert len(caught.value.one_by_one()) == 2


def test_wrong_cells_repeated_ids_and_wrong_jobs_are_told_in_the_order_of_the_lines() -> None:
    jobs = "id,workload,gpus,steps\na,net,1,-1\na,net,0,2\nb,net,x,1\nc,nix,1,1\nb,net,1,1\n"
    with pytest.raises(InvalidInput) as caught:
        imported(jobs=jobs)
    assert [error.path.removeprefix("jobs.csv:") for error in caught.value.one_by_one()] == [
        "2:steps", "3:id", "3:gpus", "4:gpus", "5:workload", "6:id",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "last"), [("x", "and at least 2,980 more"), ("-1", "and at least 980 more")]
)
def test_a_table_that_is_wrong_everywhere(cell: str, last: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        imported(jobs="workload,steps\n" + f"net,{cell}\n" * 3000)
    *lines, end = str(caught.value).splitlines()
    assert (len(lines), end) == (20, last)


def test_the_case_of_a_column_does_not_count() -> None:
    upper = JOBS.replace("id,workload,gpus", "ID,Workload,GPUs")
    assert imported(jobs=upper).sha256 == imported().sha256
    with refuses("jobs.csv:1: found the column steps a second time..."):
        imported(jobs="workload,Steps,STEPS\nnet,1,2\n")
    with refuses('jobs.csv:2:Steps: found "x", expected a number'):
        imported(jobs="workload,Steps\nnet,x\n")
    # A column as it is written comes before one that differs in case, and two of these are no choice
    columns: dict[str, Kind] = {"a": "text", "A": "whole", "b": "text", "B": "text"}
    assert read_table(b"a,A\nx,1\n", "t.csv", columns, []).documents() == [{"a": "x", "A": 1}]
    folding: dict[str, Kind] = {"Ab": "text", "aB": "text"}
    with refuses('t.csv:1: found an unknown column "ab"...'):
        read_table(b"ab\nx\n", "t.csv", folding, [])


# --- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("jobs.csv", JOBS), ("rates.csv", RATES), ("pools.csv", POOLS)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(capsys: pytest.CaptureFixture[str], *given: str) -> tuple[int, str, str]:
    from optsched.cli.main import main

    code = main(["import", "csv", "jobs.csv", "rates.csv", *given])
    return code, *capsys.readouterr()


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from optsched.instance import read_instance

    code, out, err = command(
        capsys, "--pools", "pools.csv", "-o", "i.npz", "--now", "1m", "--name", "mine"
    )
    assert (code, out, err) == (0, "i.npz: 2 jobs, 2 pools\n", "")
    assert read_instance("i.npz").sha256 == imported(name="mine", now=60).sha256
    code, out, err = command(
        capsys, "--pool", "v100=2x4", "--pool", "k80=8", "-o", "-", "--round", "30"
    )
    assert (code, err) == (0, "")
    assert '"gpus_per_node": 4' in out and '"round": 30.0' in out
    Path("jobs.csv").write_text(JOBS.replace("workload", "Model"))
    code, out, err = command(
        capsys, "--pools", "pools.csv", "--column", "Model=workload", "-o", "j.npz"
    )
    assert (code, err) == (0, "") and read_instance("j.npz").sha256 == imported(name="jobs").sha256


def test_the_columns_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "generating.md").read_text()
    for name, columns in (("jobs", JOB_COLUMNS), ("rates", RATE_COLUMNS), ("pools", POOL_COLUMNS)):
        (line,) = re.findall(rf"^\| {name} \| (.*)$", page, re.MULTILINE)
        assert set(re.findall(r"`([a-z_]+)`", line)) == set(columns)


def test_the_example_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.cli.main import main

    text = (Path(__file__).parents[2] / "README.md").read_text()
    files = dict(
        re.findall(r"^`(\w+\.csv)`:\n\n```csv\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    )
    assert list(files) == ["jobs.csv", "rates.csv"]
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    lines = re.findall(r"^    optsched (.*)$", text, re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["import", "solve"]
    assert [main(shlex.split(line)) for line in lines] == [0, 0]


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ([], 2, "--pool: found no pools and no table of pools, expected one of them"),
        (["--pool", "a=1", "--pools", "pools.csv"], 2, "--pool: found pools and table of pools"),
        (
            ["--pool", "v100"],
            2,
            "--pool: found 'v100', expected NAME=NODES or NAME=NODESxGPUS, such as v100=2x4 for 2 nodes of 4 GPUs",
        ),
        (
            ["--pool", "v100=20000000x4", "--pool", "k80=1"],
            3,
            "cluster.pools[0].nodes: found 20000000, expected a number of at most 10000000",
        ),
        (
            ["--pool", "v100=99999999999999999999", "--pool", "k80=1"],
            3,
            "cluster.pools[0].nodes: found 99999999999999999999, expected a number of at most...",
        ),
        (["--pool", "v100=2x"], 2, "--pool: found 'v100=2x', expected"),
        (["--pool", "v100=2.5"], 2, "--pool: found 'v100=2.5', expected"),
        (["--pool", "v100=1", "--pool", "v100=2"], 2, "--pool: found v100 twice"),
        (
            ["--pool", "v100=1", "--now", "noon"],
            2,
            "--now: found 'noon', expected seconds or a duration",
        ),
        (
            ["--pool", "v100=1", "--round", "0"],
            2,
            "--round: found 0.0, expected seconds above 0",
        ),
        (["--pool", "v100=1", "--name", ""], 2, "--name: found '', expected a name"),
        (["--pool", "v100=1"], 3, 'rates.csv:4:pool: found "k80", expected one of the pools v100'),
        (
            ["--pools", "none.csv"],
            3,
            "found no readable file at none.csv (No such file or directory), expected a file",
        ),
    ],
)
def test_the_command_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], given: list[str], code: int, message: str
) -> None:
    with reported() as errors:
        result = command(capsys, *given, "-o", "i.json")
    (error,) = errors
    assert stated(message).holds(error) if code == 3 else str(error).startswith(message)
    assert result == (code, "", f"optsched: error: {error}\n")
    assert not (folder / "i.json").exists()


def test_the_command_tells_the_wrong_cells_of_all_tables(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "jobs.csv").write_text("workload,gpus,steps\nnet,two,x\n")
    (folder / "rates.csv").write_text("workload,pool,throughput\nnet,v100,-1\n")
    code, _, told = command(capsys, "--pool", "v100=1", "-o", "i.json")
    assert code == 3
    assert [line.split(": ")[2] for line in told.splitlines()] == [
        "jobs.csv:2:gpus", "jobs.csv:2:steps", "rates.csv:2:throughput",
    ]  # fmt: skip


def test_times_may_have_units() -> None:
    document = imported("workload,arrival,deadline\nnet,-60,12h\nnet,90s,7200\n").to_document()
    times = [(job["arrival"], job["deadline"]) for job in document["jobs"]]
    assert times == [(-60.0, 43200.0), (90.0, 7200.0)]


def test_a_time_that_is_none_is_refused_with_what_is_possible() -> None:
    with refuses('jobs.csv:2:deadline: found "12 hours", expected a number of seconds, or a...'):
        imported("workload,deadline\nnet,12 hours\n")


def test_an_id_that_comes_twice_is_one_error() -> None:
    with pytest.raises(InvalidInput) as caught:
        import_csv(
            b"id,workload\na,w\na,w\n", b"workload,pool,throughput\nw,p,1\n", pools={"p": (1, 1)}
        )
    assert len(list(caught.value.one_by_one())) == 1
