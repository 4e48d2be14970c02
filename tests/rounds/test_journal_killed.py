"""A writer that is killed at any moment has lost nothing that it had acknowledged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

TRIALS = 30
PROGRAM = """
import os, random, signal, sys, time
import numpy as np
from optsched.rounds.journal import Journal, read_latest, records

path, trials, keep = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) or None
moments = random.Random(keep)

def record(n):
    return {"row": n, "text": "x" * (37 * n % 400)}

def state(n):
    return {"rows": n}, {"sum": np.full(500, n)}

def write(heard):
    with Journal.open(path, create=True, keep=keep) as journal:
        while True:
            n = journal.next_n
            if n % 7 == 3:
                journal.append_many(map(record, range(n, n + 3)))
            else:
                journal.append(record(n))
            os.write(heard, b"%d\\n" % journal.next_n)
            if n % 11 == 5:
                document, arrays = state(journal.next_n)
                journal.snapshot(document, arrays)

def check(acknowledged):
    snapshot, later = read_latest(path)
    last = 0
    if snapshot is not None:
        document, arrays = state(snapshot.n)
        assert snapshot.document == document and (snapshot.arrays["sum"] == arrays["sum"]).all()
        last = snapshot.n
    for n, found in later:
        assert (n, found) == (last, record(n))
        last += 1
    assert acknowledged <= last <= acknowledged + 3, (acknowledged, last)
    for n, found in records(path):
        assert found == record(n)
    return last

done = torn = 0
for trial in range(trials):
    hearing, heard = os.pipe()
    child = os.fork()
    if not child:
        try:
            write(heard)
        finally:
            os._exit(1)
    os.close(heard)
    # It dies after some records, however slow the machine is, at any moment of the next ones.
    said, records_written = b"", moments.randrange(1, 12)
    while said.count(b"\\n") < records_written:
        said += os.read(hearing, 1 << 16)
    time.sleep(moments.random() * 0.01)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    while more := os.read(hearing, 1 << 16):
        said += more
    os.close(hearing)
    acknowledged = int(said.split()[-1])
    assert acknowledged > done, said
    check(acknowledged)
    with Journal.open(path, keep=keep) as journal:
        torn += bool(journal.dropped)
        done = journal.next_n
    assert check(done) == done
print(done)
"""


def killed(folder: Path, keep: int) -> int:
    arguments = [sys.executable, "-c", PROGRAM, str(folder), str(TRIALS // 2), str(keep)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_killed_at_random_moments(tmp_path: Path) -> None:
    assert killed(tmp_path / "all", 0) >= TRIALS // 2
    assert len(list((tmp_path / "all").glob("snapshot*"))) > 0


def test_killed_while_old_segments_are_deleted(tmp_path: Path) -> None:
    assert killed(tmp_path / "few", 1) >= TRIALS // 2
    assert len(list((tmp_path / "few").glob("snapshot*"))) <= 2
