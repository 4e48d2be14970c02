"""``import philly`` and ``import sia`` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TABLE = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,a\n"
LOG = '[{"status": "Killed", "vc": "a", "jobid": "j", "attempts": [], "submitted_time": "None", "user": "u"}]'


def test_philly(run: Any, tmp_path: Path) -> None:
    jobs, machines, log = tmp_path / "jobs.csv", tmp_path / "machines.csv", tmp_path / "log"
    jobs.write_text(TABLE)
    machines.write_text("machineId,number of GPUs,single GPU mem\nm1,8,24GB\n")
    log.write_text(LOG[:-1] + ", " + LOG[1:-1].replace('"j"', '"k"') + "]")
    made = run(
        "import", "philly", jobs, "--machines", machines, "--speed", "gpu-24GB=2", "-o", "-"
    ).json
    assert made["workloads"] == {"recorded": {"throughput": {"gpu-24GB": {"1": 2.0}}}}
    assert (
        run("import", "philly", jobs, "--pool", "p=1", "--at", "1h", "-o", "-").json["now"]
        == 3600.0
    )
    target = tmp_path / "made.npz"
    assert (
        run("import", "philly", jobs, "--pool", "p=2x4", "-o", target).out
        == f"{target}: 1 job, 1 pool\n"
    )
    refused = run("import", "philly", log, "--pool", "p=1", "-o", target)
    assert refused.refused(f"{log}: found no jobs, expected at least one that ran", 3)


def test_what_is_left_out_is_told(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    detail = '[{"ip": "m1", "gpus": ["gpu0"]}]'
    ran = (
        '{"vc": "a", "jobid": "r", "submitted_time": "2017-10-09 07:01:55", "attempts": '
        f'[{{"start_time": "2017-10-09 07:01:55", "end_time": "2017-10-09 07:02:55", "detail": {detail}}}]}}'
    )
    log.write_text(f"{LOG[:-1]}, {ran}]")
    result = run("import", "philly", log, "--pool", "p=1", "-o", tmp_path / "made.json")
    assert (result.code, result.err) == (0, "optsched: left out: 1 without attempts\n")
    assert (
        run("import", "philly", log, "--pool", "p=1", "-o", tmp_path / "made.json", "-q").err == ""
    )


def test_options_that_are_refused(run: Any, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(TABLE)
    for options, message in (
        ([], "--pool: found no pools and no machines, expected one of them..."),
        (["--pool", "p=1", "--pool", "p=2"], "--pool: found p twice"),
        (
            ["--pool", "p=1", "--speed", "p"],
            "--speed: found 'p', expected POOL=FACTOR...",
        ),
        (["--pool", "p=1", "--speed", "p=-1"], "--speed: found 'p=-1'"),
        (["--pool", "p=1", "--speed", "p=1", "--speed", "p=2"], "--speed: found p twice"),
        (["--pool", "p=1", "--speed", "q=1"], "--speed: found pool 'q'"),
    ):
        assert run("import", "philly", jobs, *options, "-o", "-").refused(message)


def test_sia(run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "profiles" / "net"
    folder.mkdir(parents=True)
    (folder / "validation-10.csv").write_text(
        "progress,iteration,metric,grad_sqr,grad_var\n10,10,1,1,1\n20,20,1,1,1\n"
    )
    (folder / "placements-m.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,10,1.0,0.1\n"
    )
    jobs, made = tmp_path / "jobs.csv", tmp_path / "made.json"
    jobs.write_text("name,time,application,num_replicas,batch_size\na,0,net,1,10\n")
    given = ["import", "sia", jobs, "--profiles", tmp_path / "profiles", "--pool", "m=1x2"]
    assert run(*given, "-o", made).out == f"{made}: 1 job, 1 pool\n"
    assert "1 job with 1 change of rates on the way" in run("trace", "describe", made).out
    document = run(
        *given, "--adaptive", "--application", "net:slowdown=2,restart=7", "-o", "-"
    ).json
    assert document["format"] == "optsched-trace/1"
    assert document["instance"]["workloads"]["net/epoch 1"]["throughput"] == {"m": {"1": 0.5}}
    assert document["instance"]["jobs"][0]["restart_cost"] == 7
    for options, message in (
        (
            ["--application", "net"],
            "--application: found 'net', expected a slowdown...",
        ),
        (["--application", "net:slowdown=0"], "--application: found 'slowdown=0'"),
        (["--application", "net:speed=1"], "--application: found 'speed=1'"),
        (
            ["--application", "net:restart=1", "--application", "net:restart=2"],
            "--application: found net twice",
        ),
        (["--most", "x"], "--most: found 'x', expected a whole number"),
        (["--most", "0"], "found 1 pools and at most 0 GPUs"),
    ):
        assert run(*given, *options, "-o", "-").refused(message)
    assert run(*given, "-o", tmp_path / "made.npz").refused("npz has no place for the regimes")
