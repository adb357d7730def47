"""Parts that are dealt out to threads."""

from __future__ import annotations

import threading
import time
import tracemalloc

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tests.numerics.one_instruction import program
from tests.numerics.oracle import run_ours
from tpusim.numerics.cores import cuts, deal, on_all_cores
from tpusim.numerics.ops.convert import BFLOAT16
from tpusim.shapes.dtype import DTYPES, numpy_dtype


def blas_threads():
    """Return how many threads NumPy's BLAS has; SciPy, where it is loaded, has one of its own."""
    return min(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")


@pytest.fixture
def several_threads():
    """BLAS has three threads, on any machine."""
    with threadpool_limits(3, user_api="blas"):
        yield


@pytest.mark.usefixtures("several_threads")
def test_every_part_is_taken_once_and_by_several_threads():
    """As many as BLAS had; they wait for each other here, so that each takes one part at least."""
    taken, threads, meeting = [], set(), threading.Barrier(3, timeout=60)

    def work(parts):
        threads.add(threading.get_ident())
        meeting.wait()
        taken.extend(parts)

    with on_all_cores():
        deal(work, range(1000))
    assert sorted(taken) == list(range(1000))
    assert len(threads) == 3


@pytest.mark.usefixtures("several_threads")
@pytest.mark.parametrize("where", ["here", "there"])
def test_what_a_thread_raises_is_raised(where):
    """Whether it is this thread or another."""
    begun = threading.Event()

    def work(parts):
        is_here = threading.current_thread() is threading.main_thread()
        if not is_here:
            begun.set()
        begun.wait(60)
        if is_here == (where == "here"):
            raise ValueError(where)
        list(parts)

    with pytest.raises(ValueError, match=where), on_all_cores():
        deal(work, range(8))


@pytest.mark.usefixtures("several_threads")
def test_nothing_goes_on_where_this_thread_has_failed():
    """As where it is interrupted: what is under way ends before the error is raised, and nothing else begins."""
    begun, taken, under_way = threading.Event(), [], set()

    def work(parts):
        if threading.current_thread() is threading.main_thread():
            begun.wait(60)
            raise KeyboardInterrupt
        for part in parts:
            under_way.add(part)
            begun.set()
            time.sleep(0.01)
            under_way.remove(part)
            taken.append(part)

    with on_all_cores():
        with pytest.raises(KeyboardInterrupt):
            deal(work, range(1000))
        assert not under_way
    assert 0 < len(taken) < 1000


@pytest.mark.usefixtures("several_threads")
def test_where_no_thread_can_be_begun_this_one_does_it_all(monkeypatch):
    """As in a container that allows so many processes and no more."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    taken = []
    with on_all_cores():
        deal(taken.extend, range(10))
    assert taken == list(range(10))


@pytest.mark.usefixtures("several_threads")
def test_a_part_is_not_dealt_out_again():
    """Not by this thread either, while another has nothing to do: what waits for it would be kept in memory."""
    meeting, seen = threading.Barrier(3, timeout=60), set()

    def inner(parts):
        for _ in parts:
            seen.add(threading.current_thread())
            time.sleep(0.001)

    def work(parts):
        meeting.wait()
        if threading.current_thread() is threading.main_thread():
            for _ in parts:
                deal(inner, range(9))

    with on_all_cores():
        deal(work, range(20))
    assert seen == {threading.main_thread()}


def test_few_parts_wake_no_thread():
    """Of a small program none is begun."""
    before = threading.active_count()
    with threadpool_limits(3, user_api="blas"), on_all_cores():
        deal(list, range(1))
        deal(list, range(3), least=4)
        assert threading.active_count() == before


@pytest.mark.usefixtures("several_threads")
def test_blas_has_one_thread_meanwhile_and_all_of_them_afterwards():
    """Also where a program ends in an error."""
    seen = []

    def fail():
        seen.append(blas_threads())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), on_all_cores():
        fail()
    assert (seen, blas_threads()) == ([1], 3)


def test_overflows_are_not_warned_of_in_any_thread():
    """NumPy's settings belong to a thread; a warning is an error in this suite."""
    text = program("bf16[3000000]", "exponential(p0)", ["bf16[3000000]"])
    with threadpool_limits(3, user_api="blas"):
        result = run_ours(text, [np.full(3000000, 1000, BFLOAT16)])[0]
    assert np.isinf(result.astype(np.float32)).all()


@pytest.mark.parametrize(
    ("opcode", "sizes"),
    [("dot", ((700, 300), (300, 2500))), ("dot", ((9, 400, 300), (9, 300, 400))), ("add", ((900, 1000), (900, 1000)))],
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_values_do_not_depend_on_the_number_of_threads(opcode, sizes, dtype):
    """Where arrays are cut follows from their sizes alone."""
    batch = range(len(sizes[0]) - 2)
    numbers = ",".join(map(str, batch))
    dims = f", lhs_batch_dims={{{numbers}}}, rhs_batch_dims={{{numbers}}}" if batch else ""
    contracting = f", lhs_contracting_dims={{{len(batch) + 1}}}, rhs_contracting_dims={{{len(batch)}}}{dims}"
    shapes = [f"{dtype}[{','.join(map(str, size))}]" for size in sizes]
    result = sizes[0] if opcode == "add" else (*sizes[0][:-1], sizes[1][-1])
    text = program(
        f"{dtype}[{','.join(map(str, result))}]",
        f"{opcode}(p0, p1){contracting if opcode == 'dot' else ''}",
        shapes,
    )
    inputs = [np.random.default_rng(number).standard_normal(size, np.float32) for number, size in enumerate(sizes)]
    found = set()
    for count in (1, 4):
        with threadpool_limits(count, user_api="blas"):
            found.add(
                run_ours(text, [values.astype(numpy_dtype(DTYPES[dtype])) for values in inputs], "tpu")[0].tobytes()
            )
    assert len(found) == 1


CONVOLUTION = "convolution(p0, p1), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"


def test_a_convolution_does_not_depend_on_the_number_of_threads():
    """Each thread makes patches of its own."""
    text = program("f32[2,56,56,64]", CONVOLUTION, ["f32[2,56,56,64]", "f32[3,3,64,64]"])
    inputs = [np.random.default_rng(0).standard_normal(s, np.float32) for s in ((2, 56, 56, 64), (3, 3, 64, 64))]
    found = set()
    for count in (1, 4):
        with threadpool_limits(count, user_api="blas"):
            found.add(run_ours(text, inputs, "tpu")[0].tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("window", "image", "taps"),
    [("3x3 pad=1_1x1_1", (16, 128, 128, 64), (3, 3, 64, 32)), ("7x7x7", (8, 14, 14, 14, 64), (7, 7, 7, 64, 16))],
)
def test_patches_of_a_convolution_are_made_piece_by_piece(window, image, taps, threads):
    """Nine times the image, or 40 of them, are never there at once: a few pieces of 4 million for each thread are."""
    digits = "012"[: len(taps) - 2]
    reach = 0 if "pad" in window else taps[0] - 1
    result = (image[0], *(size - reach for size in image[1:-1]), taps[-1])
    shapes = [f"bf16[{','.join(map(str, sizes))}]" for sizes in (image, taps, result)]
    labels = f"b{digits}f_{digits}io->b{digits}f"
    text = program(shapes[2], f"convolution(p0, p1), window={{size={window}}}, dim_labels={labels}", shapes[:2])
    inputs = [np.ones(sizes, BFLOAT16) for sizes in (image, taps)]
    run_ours(text, inputs, "tpu")
    with threadpool_limits(threads, user_api="blas"):
        peak = peak_bytes(lambda: run_ours(text, inputs, "tpu"))
    piece = (1 << 22) * (2 + 4)
    # What it is given with its padding, and what it gives.
    assert peak < 2.2 * inputs[0].nbytes + np.prod(result) * 2 + 1.5 * threads * piece


def peak_bytes(function):
    """Return how many bytes Python and NumPy hold at most while a function runs."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (4, 6), (2, 3, 4)])
@pytest.mark.parametrize("most", [1, 5, 100])
def test_cuts_are_the_whole_array(shape, most):
    """Every element once, none with more elements than asked, each of them in one piece."""
    array = np.zeros(shape, int)
    for index in cuts(shape, most):
        assert array[index].size <= most
        assert array[index].flags.c_contiguous
        array[index] += 1
    assert (array == 1).all()
