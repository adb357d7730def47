"""The one list of exceptions to the house rules, with a reason each.

An entry is (rule, place, reason): the rule's name in ``rules.py``, and the place as a failure prints it, ``path`` or
``path::name``. A path alone excuses the whole file. An entry that excuses nothing any more fails
``test_every_exception_is_still_needed``.
"""

from __future__ import annotations

EXCEPTIONS: list[tuple[str, str, str]] = [
    (
        "functions do not import the package",
        "tpusim/pipeline/stages.py",
        "SimPy, NumPy and Numba load only for who simulates or computes; reading and lowering a program stay quick",
    ),
    (
        "functions do not import the package",
        "tpusim/pipeline/layers.py",
        "Numba loads only where cycles are counted",
    ),
    (
        "functions do not import the package",
        "tpusim/lowering/custom_calls.py",
        "NumPy goes through the grid of a Pallas kernel; other programs are lowered without it",
    ),
    (
        "functions do not import the package",
        "tpusim/lowering/grids.py",
        "as above, for pictures of such a kernel",
    ),
    (
        "functions do not import the package",
        "tpusim/pipeline/result.py",
        "Rich takes longer to load than a small program to run, and few results are printed or asked for their path",
    ),
    (
        "functions do not import the package",
        "tpusim/cli/run.py",
        "a command loads its rooms when it is called, so that --help loads none of them",
    ),
    *(
        (
            "functions do not import the package",
            f"tpusim/pipeline/{name}.py",
            "the compiler, which needs NumPy, loads where something is compiled",
        )
        for name in ("compile", "schedules", "targets")
    ),
    *(
        (
            "functions do not import the package",
            f"tpusim/machine/{name}.py",
            "NumPy is for the links: a program for one chip starts without it",
        )
        for name in ("costs", "world")
    ),
    (
        "functions do not import the package",
        "tpusim/cost/models/memories.py",
        "Numba loads only where banks are played, and not for the memory of one rate",
    ),
    *(
        ("functions do not import the package", f"tpusim/{place}.py", "as in pipeline/result.py")
        for place in ("advice/advise", "pipeline/answers/shown", "report/pipe", "report/shown", "study/scale")
    ),
    *(
        ("functions do not import the package", f"tpusim/cli/{name}.py", "as in cli/run.py")
        for name in "answers compile entry main model options output plot scale show sweep systolic".split()
    ),
    *(
        (
            "functions take at most 6 positional arguments, kernels 10",
            f"tpusim/build/{place}",
            "the arguments are those of XLA's operation",
        )
        for place in (
            "collectives.py",
            "contraction.py",
            "reduction.py",
        )
    ),
    (
        "sets of opcodes stand in ir/ops.py",
        "tpusim/program/steps.py",
        "a lowered program is a noun beside ir and reads without it; test_program compares its kinds with the opcodes",
    ),
    (
        "sets of opcodes stand in ir/ops.py",
        "tpusim/semantics/verify/channels.py",
        "the pairs of XLA's rule about which transfer on a channel comes before which",
    ),
    (
        "sets of opcodes stand in ir/ops.py",
        "tpusim/semantics/infer/elementwise.py",
        "a table of rules, each with the types that it allows and the opcodes that it is the rule of",
    ),
]
