"""Axes of a mesh that lie badly on the chips."""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.pipeline.answers.device_orders import orders_by_time
from tpusim.program.device_order import with_device_order
from tpusim.report.terminal.answers.explain import order_text


@advises("mesh order")
def mesh_order(case: Case) -> Iterator[Trial]:
    """Propose the order of devices in which all collectives together are fastest."""
    shares = {op.name: max(op.time_ps, op.beside_ps) / max(1, case.total_ps) for op in case.result.summary.ops}
    found = [step for step in case.program.collectives if shares.get(step.name, 0.0) >= LEAST_SHARE]
    for order in orders_by_time(case.program, case.chip, case.topology, *found)[:1] if found else ():
        yield Trial(
            "devices that communicate most are not neighbours on the torus",
            f"make the mesh of {order_text(order)}, reshaped as before (`tpusim run --device-order` tries it)",
            tuple(step.name for step in found),
            found[0].source,
            with_device_order(case.program, order.devices),
        )
