"""The page of a collapse study: did the content sharpen, or did only the sink grow?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sinkwise.report.entries import entries
from sinkwise.report.figures.collapse import (
    change_map,
    channel_words,
    contributions,
    entropy_curves,
    sink_mass_curve,
)
from sinkwise.report.page import write_page
from sinkwise.report.section import (
    Block,
    Cards,
    Details,
    Figure,
    Figures,
    Heading,
    KeyFigure,
    Paragraph,
    Section,
    Table,
    table,
)
from sinkwise.report.wording import count_of, interval, number, percent, plain
from sinkwise.studies.collapse import CollapseStudy
from sinkwise.studies.collapse_records import EntropyShift
from sinkwise.studies.collapse_sums import CHANNELS
from sinkwise.studies.collapse_verdicts import VERDICTS

__all__ = ["collapse_section", "write_collapse_report"]


def write_collapse_report(study: CollapseStudy, path: str | os.PathLike[str]) -> Path:
    """Write the report of a study as one HTML file and return its path.

    Raises
    ------
    MissingExtraError
        If plotly or Jinja2 is not installed.
    """
    card = study.card()
    named = card.get("model") or card.get("model_class") or "Attention arrays"
    return write_page(
        path,
        model=f"{plain(named)} over training",
        measured=(
            f"{count_of(len(study.names), 'checkpoint')}, {count_of(len(study.heads), 'head')}, "
            f"{count_of(card['documents'], 'document')}, {count_of(study.n_rows, 'row')} at each. "
            f"Sink: {plain(card.get('sink'))}."
        ),
        sections=[collapse_section(study), _card(card)],
    )


def collapse_section(study: CollapseStudy) -> Section:
    """Return the study's section."""
    return Section(
        id="collapse",
        title="Entropy over checkpoints",
        short="Over training",
        question="Attention entropy changed: did the content sharpen, or did only the sink grow?",
        misleads=(
            "A mean over heads can stand still while heads move in opposite directions: read the "
            "maps too. A channel that is told apart from 0 need not be large: read its size. The "
            "verdict is that of these documents and this sink; a sink elsewhere counts as content."
        ),
        content=tuple(_content(study)),
    )


def _card(card: dict[str, Any]) -> Section:
    return Section(
        id="card",
        title="Convention card",
        short="Card",
        question="Under which conventions do these numbers hold?",
        misleads="Numbers from two studies whose cards differ do not compare.",
        content=(entries(card),),
    )


def _content(study: CollapseStudy) -> Iterator[Block]:
    overall, level = study.overall, f"{100 * study.level:.4g} %"
    yield Paragraph(
        "The same rows at every checkpoint. Entropy is split, exactly and row by row, into "
        "whether the mass is on the sink, how the content shares the rest, and how several sink "
        "keys share theirs; a change is attributed symmetrically, and its channels add up to it."
    )
    yield Paragraph(
        f"From {overall.first} to {overall.second}: {overall.verdict}. {overall.words}", "verdict"
    )
    yield Cards(
        (
            KeyFigure("change of entropy (nat)", *_key(overall.total, level)),
            KeyFigure("by the sink", *_key(overall.sink, level, overall.shares["sink"])),
            KeyFigure("by the content", *_key(overall.content, level, overall.shares["content"])),
            KeyFigure("change of sink mass", *_key(overall.sink_mass, level)),
        )
    )
    if not np.isfinite(overall.shares["sink"].value):
        yield Paragraph(_withheld(overall), "aside")
    yield from _figures(study)
    yield _changes_table(study)
    yield from _heads(study, level)
    yield from _extremes(study)


def _figures(study: CollapseStudy) -> Iterator[Block]:
    several = len(study.names) > 2
    stacks = [
        Figure(
            "collapse",
            contributions(study),
            "Change of entropy between consecutive checkpoints, by channel.",
            "Signed contributions, stacked; the line is the total with its interval. Each stack "
            "adds up to its total, which is checked.",
        )
    ]
    if several:
        stacks.append(
            Figure(
                "collapse-since-first",
                contributions(study, since_first=True),
                "The same since the first checkpoint.",
                "Each stack attributes the change from the first checkpoint to this one at once; "
                "it is not the sum of the stacks beside it, whose attribution follows the path.",
            )
        )
    yield Figures(tuple(stacks), columns=2)
    yield Figures(
        (
            Figure(
                "collapse-sink-mass",
                sink_mass_curve(study),
                "Sink mass.",
                "Mean over rows, pooled over heads; the band is its interval over documents.",
            ),
            Figure(
                "collapse-entropy",
                entropy_curves(study),
                "Entropy of the whole row, and of the content alone.",
                "Where the grey line falls and the other does not, only the sink grew.",
            ),
        ),
        columns=2,
    )
    yield Figures(
        tuple(
            Figure(
                f"collapse-map-{name.replace('_', '-')}",
                change_map(study, name),
                f"From the first checkpoint to the last: {channel_words(name)}.",
                "Blue lowered the entropy, red raised it; one scale for all channels.",
                linked=True,
            )
            for name in CHANNELS
            if name != "within_sink" or study.overall.within_sink.value != 0
        ),
        columns=2,
    )


def _changes_table(study: CollapseStudy) -> Table:
    shifts = [*study.changes(), *([study.overall] if len(study.names) > 2 else [])]
    return table(
        "Changes of entropy (nat), with their channels and the channels' shares",
        [{"shift": shift} for shift in shifts],
        {
            "from": lambda r: r["shift"].first,
            "to": lambda r: r["shift"].second,
            "total": lambda r: interval(*r["shift"].total),
            **{channel_words(name): partial(_channel, name) for name in CHANNELS},
            **{
                f"share of {channel_words(name)}": partial(_channel_share, name)
                for name in CHANNELS[:2]
            },
            "sink mass": lambda r: interval(*r["shift"].sink_mass),
            "verdict": lambda r: r["shift"].verdict,
            "mostly": lambda r: channel_words(r["shift"].mostly),
        },
    )


def _heads(study: CollapseStudy, level: str) -> Iterator[Block]:
    heads = study.by_head()
    yield Heading("By head and layer, from the first checkpoint to the last")
    counts = heads.verdict.value_counts()
    told = ", ".join(f"{name} {counts[name]}" for name in VERDICTS if name in counts)
    yield Paragraph(f"Heads by verdict: {told}.", "verdict")
    chance = number((1 - study.level) * len(heads), 1)
    yield Paragraph(
        f"Each verdict stands on its own {level} intervals: of {count_of(len(heads), 'head')} that "
        f"did not change, about {chance} would be called changed in each channel by chance.",
        "aside",
    )
    columns: dict[str, Any] = {
        "total": lambda r: _part(r, "total"),
        **{
            channel_words(name): lambda r, name=name: _part(r, name) if r[name] != 0 else ""
            for name in CHANNELS
        },
        "sink mass": lambda r: _part(r, "sink_mass"),
        "verdict": lambda r: r["verdict"],
    }
    layers = study.by_layer().to_dict("records")
    yield Details(
        "All layers",
        (
            table(
                "Changes by layer (nat)",
                layers,
                {"layer": lambda r: str(r["layer"]), **columns},
            ),
        ),
    )
    yield Details(
        f"All {count_of(len(heads), 'head')}",
        (
            table(
                "Changes by head (nat)",
                heads.to_dict("records"),
                {"head": lambda r: r["label"], **columns},
            ),
        ),
    )


def _extremes(study: CollapseStudy) -> Iterator[Block]:
    found = study.extremes()
    yield Heading("Extremes of the content, low and high apart")
    bounds = {"peaked": f"below {study.peaked:g}", "uniform": f"above {study.uniform:g}"}
    for kind, words in bounds.items():
        rows = found[found.kind == kind]
        counts = [int((rows.checkpoint == name).sum()) for name in study.names]
        yield Paragraph(
            f"{kind.capitalize()} content (H(π)/log m {words} on average): "
            + ", ".join(f"{n} at {name}" for n, name in zip(counts, study.names, strict=True))
            + f", of {count_of(len(study.heads), 'head')}."
        )
    if len(found):
        yield Details(
            "Heads at an extreme",
            (
                table(
                    "Content entropy over its maximum, by head and checkpoint",
                    found.to_dict("records"),
                    {
                        "checkpoint": lambda r: str(r["checkpoint"]),
                        "head": lambda r: r["label"],
                        "content is": lambda r: r["kind"],
                        "H(π)/log m": lambda r: interval(
                            r["content_evenness"], r["low"], r["high"]
                        ),
                        "rows beyond the bound": lambda r: percent(r["rows_share"]),
                    },
                ),
            ),
        )


def _key(found: Any, level: str, share: Any = None) -> tuple[str, str]:
    value, _, bounds = interval(*found).partition(" ")
    note = f"{level} interval {bounds.strip('()')}" if bounds else "no interval"
    if share is not None and np.isfinite(share.value):
        note = f"{_share(share)} of the change; {note}"
    return value, note


def _withheld(shift: EntropyShift) -> str:
    if shift.verdict == "no interval":
        return "No shares and no intervals: they need two documents."
    return (
        "No shares: the interval of the change of entropy holds 0, and a share of nothing means "
        "nothing."
    )


def _channel(name: str, row: Any) -> str:
    return _nonzero(getattr(row["shift"], name))


def _channel_share(name: str, row: Any) -> str:
    return _share(row["shift"].shares[name])


def _share(share: Any) -> str:
    if not np.isfinite(share.value):
        return "withheld"
    return f"{100 * share.value:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})"


def _nonzero(found: Any) -> str:
    return interval(*found) if found.value != 0 else ""


def _part(row: Any, name: str) -> str:
    return interval(row[name], row[f"{name}_low"], row[f"{name}_high"])
