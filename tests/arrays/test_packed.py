"""Arrays as a line of text: what is read is what was written, to the last bit, and nothing else is read."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optsched.arrays.packed import pack, unpack

ARRAYS = st.dictionaries(
    st.text(max_size=6),
    st.one_of(
        hnp.arrays(np.int64, hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=4)),
        hnp.arrays(np.float64, st.integers(0, 5)),
        hnp.arrays(np.bool_, st.integers(0, 5)),
        hnp.arrays(np.uint8, st.integers(0, 5)),
    ),
    max_size=4,
)


@given(ARRAYS)
def test_what_is_unpacked_is_what_was_packed(arrays: dict[str, np.ndarray]) -> None:
    text = pack(arrays)
    assert text.isascii() and "\n" not in text and text == pack(arrays)
    again = unpack(text)
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        assert (again[name].dtype, again[name].shape) == (array.dtype, array.shape)
        assert again[name].tobytes() == array.tobytes()


def test_small_numbers_take_little_room() -> None:
    step = np.ones(100_000, np.int64)
    assert len(pack({"step": step})) < 1000
    noise = np.random.default_rng(0).integers(-128, 128, 10_000)
    assert len(pack({"noise": noise})) < 1.4 * len(noise)


def test_what_no_type_stands_for_is_refused() -> None:
    for array in (np.zeros(2, np.float32), np.array(["a"]), np.array([None])):
        with pytest.raises(TypeError, match="expected one of int64, float64"):
            pack({"x": array})


def stream(text: str, data: bytes = b"") -> str:
    return base64.b64encode(zlib.compress(text.encode() + b"\n" + data)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64",
        "AAAA",
        pack({"x": np.arange(9)})[:-8],
        pack({"x": np.arange(9)}) + "AAAA",
        base64.b64encode(zlib.compress(b"no header")).decode(),
        stream("{}", b"more"),
        stream('[["x","int64","<i8",[2]]]', b"short"),
        stream('[["x","int64","O",[1]]]', bytes(8)),
        stream('[["x","object","<i8",[1]]]', bytes(8)),
        stream('[["x","int64","<i8"]]', bytes(8)),
        stream("[1]"),
        stream('[["x","int64","<i8",[1e9]]]'),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^no packed arrays: "):
        unpack(text)


def test_a_stream_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched.arrays.packed.MOST_BYTES", 1000)
    assert unpack(pack({"x": np.zeros(10)}))["x"].shape == (10,)
    with pytest.raises(ValueError, match="no packed arrays"):
        unpack(pack({"x": np.zeros(10_000)}))
