"""Comparing pictures: as shades of grey, blurred, so that fonts and versions may differ and contents may not.

``python -m tests.report.pictures [NAME...]`` draws the baselines anew; look at each before it is kept.
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imread
from PIL import Image

from tests.report.picture_cases import CASES
from tpusim.report.plots.style import Figure, text_box

BASELINES = Path(__file__).parent / "baselines"
# Inches become few pixels: enough to recognise everything, and small files.
DPI = 64
# Pixels over which a difference is averaged: a short word, so that shapes of letters do not count.
BLUR = 16

Pixels = np.ndarray[Any, Any]


def grey_of(figure: Figure) -> Pixels:
    """Return a picture as shades of grey, 0 black to 1 white, (height, width)."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    buffer.seek(0)
    return _grey(imread(buffer))


def baseline_of(name: str) -> Pixels:
    """Return a stored picture."""
    return _grey(imread(BASELINES / f"{name}.png"))


def _grey(pixels: Pixels) -> Pixels:
    """Return pixels without colours, by how light colours look (ITU-R BT.601)."""
    return pixels if pixels.ndim == 2 else pixels[..., :3] @ np.array([0.299, 0.587, 0.114])


def difference(one: Pixels, other: Pixels) -> float:
    """Return how far two pictures differ where they differ most, after blurring, 0 to 1; other sizes are 1."""
    if max(abs(a - b) for a, b in zip(one.shape, other.shape, strict=True)) > 3:
        return 1.0
    height, width = (min(sizes) // BLUR * BLUR for sizes in zip(one.shape, other.shape, strict=True))
    blurred = [
        p[:height, :width].reshape(height // BLUR, BLUR, width // BLUR, BLUR).mean(axis=(1, 3)) for p in (one, other)
    ]
    return float(np.abs(blurred[0] - blurred[1]).max())


def texts_of(figure: Figure) -> list[Any]:
    """Return every text that can be seen: titles, labels, ticks in sight, legends, what stands in the axes."""
    figure.draw_without_rendering()
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    if figure.get_suptitle():
        found.append(figure._suptitle)  # type: ignore[attr-defined]
    for ax in figure.axes:
        if ax.axison:
            found += [ax.title, ax._left_title, ax._right_title, ax.xaxis.label, ax.yaxis.label, *ax.texts]  # type: ignore[attr-defined]
            found += _ticks(ax.get_xticklabels(), ax.get_xlim(), 0) + _ticks(ax.get_yticklabels(), ax.get_ylim(), 1)
            found += ax.get_legend().get_texts() if ax.get_legend() else []
    return list({id(text): text for text in found if text.get_visible() and text.get_text().strip()}.values())


def _ticks(labels: list[Any], limits: tuple[float, float], axis: int) -> list[Any]:
    """Return the labels of ticks that lie within the limits of their axis."""
    low, high = sorted(limits)
    # Relative, since an axis may be logarithmic.
    low, high = low - 1e-9 * abs(low), high + 1e-9 * abs(high)
    return [label for label in labels if low <= label.get_position()[axis] <= high]


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Return the pairs of texts of a picture that cover each other by more than a pixel."""
    boxes = [(text.get_text(), text_box(text).padded(-1.0)) for text in texts_of(figure)]
    return [
        (one, other)
        for place, (one, box) in enumerate(boxes)
        for other, second in boxes[place + 1 :]
        if box.overlaps(second)
    ]


def strays(figure: Figure) -> list[str]:
    """Return the texts of a picture that reach over its edge by more than two pixels."""
    texts = texts_of(figure)
    width, height = figure.bbox.width, figure.bbox.height
    boxes = [(text.get_text(), text_box(text).padded(-2.0)) for text in texts]
    return [words for words, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height]


def write_baselines(names: list[str]) -> None:
    """Draw baselines, all of them without names."""
    BASELINES.mkdir(exist_ok=True)
    for name in names or CASES:
        pixels = Image.fromarray((grey_of(CASES[name]()) * 255).round().astype(np.uint8))
        # So many shades of grey are as good for the eye, and half of the bytes.
        pixels.quantize(64).save(BASELINES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    write_baselines(sys.argv[1:])
