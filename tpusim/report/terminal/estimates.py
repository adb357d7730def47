"""Kernels beside the compiler's estimates: by category, and the classes that lie far from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from tpusim.analysis.estimates import (
    LEAST_MEDIAN,
    LEAST_US,
    MOST_MEDIAN,
    CategoryRatios,
    EstimateComparison,
    FarClass,
)
from tpusim.report.tables import Printer, Table, escape, plain_table, us_text


def render_estimates(found: EstimateComparison, console: Printer) -> None:
    """Print the table of categories, the classes that are far off with their worst kernels, and what was left out."""
    if found.categories:
        console.print(_categories(found.categories))
        console.print(
            "median, p10, p90: of ours over the compiler's, each kernel counting once; sums: of all executions"
        )
    console.print(
        f"{len(found.kernels):,} kernels of {found.programs:,} programs: those that take more than {LEAST_US:g} us, by "
        "us or by the compiler"
    )
    console.print()
    outside = f"outside {LEAST_MEDIAN:g} to {MOST_MEDIAN:g}"
    if found.far_off:
        console.print(_far_off(found.far_off))
        console.print(f"classes whose median is {outside}, the largest difference of sums first, and the worst of each")
    else:
        console.print(f"No class of kernels has a median {outside}.")
    for text in _left_out(found.left_out):
        console.print(escape(text))


def _categories(rows: Sequence[CategoryRatios]) -> Table:
    figures = (">kernels", ">median", ">p10", ">p90", ">ours", ">compiler", ">ours/compiler")
    table = plain_table("category", "chip", *figures)
    for row in rows:
        ratios = (f"{ratio:.2f}" for ratio in (row.median, row.p10, row.p90))
        sums = (us_text(row.predicted_us), us_text(row.compiler_us), f"{row.predicted_us / row.compiler_us:.2f}")
        table.add_row(escape(row.category), escape(row.chip), f"{row.kernels:,}", *ratios, *sums)
    return table


def _far_off(classes: Sequence[FarClass]) -> Table:
    table = plain_table("far off", "chip", "bound by", ">kernels", ">median", ">ours", ">compiler")
    for one in classes:
        where = (escape(one.chip), escape(one.bound_by))
        sums = (us_text(one.predicted_us), us_text(one.compiler_us))
        table.add_row(escape(one.category), *where, f"{one.kernels:,}", f"{one.median:.2f}", *sums)
        for kernel in one.worst:
            times = (us_text(kernel.predicted_us), us_text(kernel.compiler_us))
            name = escape(f"  {kernel.program} {kernel.op}")
            table.add_row(name, "", escape(kernel.bound_by), "", f"{kernel.ratio:.2f}", *times)
    return table


def _left_out(reasons: Mapping[str, str]) -> Iterator[str]:
    programs: dict[str, list[str]] = defaultdict(list)
    for path, why in reasons.items():
        programs[why].append(PurePath(path).name)
    for why, names in programs.items():
        yield f"left out, {why}: {', '.join(names)}"
