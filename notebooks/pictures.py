"""Draw the pictures of the README into ``notebooks/pictures``: ``python notebooks/pictures.py``, from the checkout."""

from __future__ import annotations

from pathlib import Path

import tpusim
from tpusim import plot

ROOT = Path(__file__).resolve().parents[1]
PICTURES = Path(__file__).resolve().parent / "pictures"


def main() -> None:
    """Draw a layout, a time line and a roofline."""
    PICTURES.mkdir(exist_ok=True)
    plot.save(plot.layout("bf16[10,300]{1,0:T(8,128)(2,1)}"), PICTURES / "layout.png")
    training = tpusim.simulate(ROOT / "traces/resnet50_train_b64.v5e.hlo.txt.gz")
    plot.save(plot.timeline(training), PICTURES / "timeline.png")
    plot.save(plot.roofline(training), PICTURES / "roofline.png")


if __name__ == "__main__":
    main()
