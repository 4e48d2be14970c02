"""Scripts of benchmarks refuse what makes no sense before they run for minutes, in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

FOLDER = Path(__file__).parents[1] / "benchmarks"
WRONG = [
    (["foo"], "found 'foo', expected JOBSxPOOLS, such as 10000x4"),
    (["100"], "found '100', expected JOBSxPOOLS"),
    (["0x3"], "found '0x3', expected JOBSxPOOLS"),
    (["100x2x3"], "found '100x2x3', expected JOBSxPOOLS"),
    (["--repeat", "0"], "found '0', expected a whole number of at least 1"),
    (["--limit", "-1"], "found '-1', expected seconds above 0"),
    (["--limit", "soon"], "found 'soon', expected seconds above 0"),
]
PICTURES = [
    (["--picture", "there is no folder/x.svg"], "expected a file in a folder that is there"),
    (["--picture", "x.foo"], "expected a file with one of .svg, .png, .pdf"),
]


def told(script: str, arguments: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, FOLDER / script, *arguments], capture_output=True, text=True
    )
    return done.returncode, " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        (file, *wrong)
        for file in ("columns.py", "constraints.py", "elastic.py", "whole_jobs.py")
        for wrong in WRONG[:2]
    ]
    + [("first_solve.py", *wrong) for wrong in (WRONG[0], WRONG[4])]
    + [("scale.py", *wrong) for wrong in WRONG + PICTURES],
)
def test_wrong_arguments_are_told(script: str, arguments: list[str], words: str) -> None:
    code, text = told(script, arguments)
    assert code == 2 and words in text and "Traceback" not in text
