"""What all importers take in one way: files by path or as bytes, pools by numbers or as documents, former keywords."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import refuses

from optsched.errors import UsageError
from optsched.formats import import_philly, import_tiresias

JOBS = (
    "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
    "0,2,10,1,vgg,100,1\n1,1,5,1,net,50,1\n"
)
LOG = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,a\n"


def test_a_file_is_a_path_or_its_contents(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(JOBS)
    pools = {"v100": (2, 4)}
    made = import_tiresias(JOBS.encode(), pools=pools)
    assert import_tiresias(path, pools=pools) == import_tiresias(str(path), pools=pools) == made
    with refuses('trace:2:duration: found "x", expected a number'):
        import_tiresias(JOBS.replace("100", "x").encode(), pools=pools)


def test_pools_are_numbers_or_documents() -> None:
    document = {"name": "v100", "gpu": "v100", "nodes": 2, "gpus_per_node": 4}
    by_numbers = import_tiresias(JOBS.encode(), pools={"v100": (2, 4)})
    assert import_tiresias(JOBS.encode(), pools=[document]) == by_numbers


def test_former_names_of_keywords() -> None:
    pools = {"p": (1, 4)}
    made = import_philly(LOG.encode(), pools, speeds={"p": 2.0}).instance
    former = {"log": LOG.encode(), "speed": {"p": 2.0}}
    assert import_philly(pools=pools, **former).instance.sha256 == made.sha256
    with refuses("speed is the former name of speeds: give one of them", UsageError):
        import_philly(LOG.encode(), pools, speeds={"p": 1.0}, **{"speed": {"p": 2.0}})


@pytest.mark.parametrize("name", ["sped", "speds"])
def test_an_unknown_keyword_is_refused_with_the_closest_one(name: str) -> None:
    with refuses(f"import_philly has no parameter {name!r}; did you mean speeds?", UsageError):
        import_philly(LOG.encode(), {"p": (1, 4)}, **{name: {"p": 2.0}})
