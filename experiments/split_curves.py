"""Draw what each channel did to the entropy of some runs, as one SVG.

``python -m experiments.split_curves --out FILE.svg TITLE=RUN [TITLE=RUN ...]`` reads the folders
that ``sinkwise collapse`` wrote.  Every point is the exact attribution of the change between the
first checkpoint and this one, so it doesn't depend on which checkpoints were saved in between.
Beneath each pair of areas stand the two curves they explain.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import sinkwise as sw
from sinkwise.report.theme import COLOURS

__all__ = ["Curves", "draw", "read_curves"]

SINK, CONTENT, TOTAL, MASS = (COLOURS[c] for c in ("orange", "blue", "grey", "vermilion"))
WIDTH, GAP, LEFT, TOP, UPPER, LOWER = 440, 58, 56, 64, 210, 120


@dataclass(frozen=True)
class Curves:
    """One run: a value for each checkpoint, its entropies in nats."""

    title: str
    steps: tuple[int, ...]
    sink: tuple[float, ...]
    """The sink's contribution to the change of entropy since the first checkpoint."""
    content: tuple[float, ...]
    sink_mass: tuple[float, ...]
    content_entropy: tuple[float, ...]


def read_curves(title: str, study: sw.CollapseStudy) -> Curves:
    """Take the curves of a study whose sink is one key, so that nothing lies within it."""
    points = study.checkpoints
    shifts = [study.change(study.names[0], name) for name in study.names[1:]]
    return Curves(
        title,
        tuple(int(step) for step in points["step"]),
        (0.0, *(float(shift.sink.value) for shift in shifts)),
        (0.0, *(float(shift.content.value) for shift in shifts)),
        tuple(points["sink_mass"]),
        tuple(points["content_entropy"]),
    )


def draw(runs: Sequence[Curves]) -> str:
    """Return the SVG: a column for each run."""
    lowest = min(min(a + b for a, b in zip(run.sink, run.content, strict=True)) for run in runs)
    highest = max(max(run.content_entropy) for run in runs)
    width = LEFT + len(runs) * (WIDTH + GAP)
    height = TOP + UPPER + 40 + LOWER + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for number, run in enumerate(runs):
        parts += _column(run, LEFT + number * (WIDTH + GAP), lowest, highest)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> list[str]:
    entries = (
        (SINK, "sink’s part of the change"),
        (CONTENT, "content’s part"),
        (TOTAL, "entropy since the first checkpoint"),
        (MASS, "sink mass"),
    )
    marks, x = [], LEFT
    for colour, words in entries:
        marks.append(f'<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/>')
        marks.append(_text(x + 17, 24, words))
        x += 42 + 6.4 * len(words)
    return marks


def _column(run: Curves, left: float, lowest: float, highest: float) -> list[str]:
    places = [left + WIDTH * i / (len(run.steps) - 1) for i in range(len(run.steps))]
    total = [a + b for a, b in zip(run.sink, run.content, strict=True)]
    floor = TOP + UPPER + 40 + LOWER

    def upper(value: float) -> float:
        return TOP + UPPER * value / lowest

    def lower(value: float) -> float:
        return floor - LOWER * value

    def area(top: Sequence[float], bottom: Sequence[float], colour: str) -> str:
        there = [f"{x:.1f},{upper(y):.1f}" for x, y in zip(places, top, strict=True)]
        back = [f"{x:.1f},{upper(y):.1f}" for x, y in zip(places, bottom, strict=True)]
        points = " ".join([*there, *reversed(back)])
        return f'<polygon points="{points}" fill="{colour}" fill-opacity="0.75"/>'

    def line(heights: Sequence[float], colour: str) -> str:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places, heights, strict=True))
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'

    marks = [_text(left, TOP - 12, run.title, weight="600")]
    for value in range(0, int(lowest) - 1, -1):
        marks += _rule(left, upper(value), f"{value} nats" if value else "0")
    marks.append(area([0.0] * len(total), run.sink, SINK))
    marks.append(area(run.sink, total, CONTENT))
    marks.append(line([upper(value) for value in total], TOTAL))
    for value in (0, 0.5, 1):
        marks += _rule(left, lower(value), f"{value:g}")
    marks.append(line([lower(value) for value in run.sink_mass], MASS))
    marks.append(line([lower(value / highest) for value in run.content_entropy], CONTENT))
    marks.append(
        _text(left + 4, floor - LOWER - 6, f"sink mass; content entropy over {highest:.2f} nats")
    )
    for place, step in zip(places, run.steps, strict=True):
        marks.append(_text(place, floor + 16, str(step), anchor="middle", size=9))
    marks.append(_text(left + WIDTH / 2, floor + 34, "step", anchor="middle"))
    return marks


def _rule(left: float, y: float, words: str) -> list[str]:
    across = f'x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}"'
    return [
        f'<line {across} stroke="#e3e6ea"/>',
        _text(left - 6, y + 4, words, anchor="end", size=10),
    ]


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, weight: str = "400"
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return (
        f'<text {place} font-size="{size}" font-weight="{weight}" fill="#24292f">'
        f"{escape(words)}</text>"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="SVG file to write")
    parser.add_argument("runs", nargs="+", metavar="TITLE=RUN")
    arguments = parser.parse_args()
    named = [run.rpartition("=") for run in arguments.runs]
    curves = [read_curves(title, sw.open_collapse(folder)) for title, _, folder in named]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(draw(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
