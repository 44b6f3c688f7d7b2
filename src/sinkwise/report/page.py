"""One self-contained HTML page from an audit's saved results."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise import __version__
from sinkwise.errors import MissingExtraError
from sinkwise.report import figures as draw
from sinkwise.report import tables
from sinkwise.report.bands import BAND_METRICS, band
from sinkwise.report.ordering import HeadOrder, shared_order
from sinkwise.report.snapshot import AuditLike, Snapshot, condensed, has_matrix, matrix_of
from sinkwise.report.story import key_figures, methods_paragraph, verdict
from sinkwise.report.theme import CONFIG
from sinkwise.report.wording import count_of, metric_title, number, percent, plain
from sinkwise.studies.channels import CHANNELS, channel_shares

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["write_report"]

_SECTIONS = (
    ("headline", "Headline"),
    ("sink-mass", "Sink mass"),
    ("reversals", "Reversed verdicts"),
    ("distances", "Distances"),
    ("channels", "Three channels"),
    ("bands", "Collapse bands"),
    ("taxonomy", "Groups of heads"),
    ("zero-rule", "Zero rule"),
    ("card", "Card and methods"),
    ("guide", "Guide"),
)
_MATRIX_CAPTIONS = {
    "js_divergence/kept": "Where the weight goes, sink included.",
    "js_divergence/dropped": "Where the weight goes among the content.",
    "content": "Which keys and how sharply, blind to the sink.",
    "content_angle": "Which keys alone, blind to the sink and to sharpness.",
}


@dataclass(frozen=True)
class PageFigure:
    """A figure with its words."""

    id: str
    title: str
    caption: str
    alt: str
    height: int
    json: Any
    linked: bool = False


def write_report(audit: AuditLike, path: str | os.PathLike[str]) -> Path:
    """Write the report of `audit` as one HTML file and return its path.

    The page holds everything it needs (figures, scripts, styles) and loads nothing from
    elsewhere.  The same audit gives the same bytes.  The file is written whole: a reader never
    sees half of it.  Neither torch nor a model is needed.

    Parameters
    ----------
    audit
        An audit, fresh or opened from a run folder.
    path
        File to write; its folder is made if it does not exist.

    Raises
    ------
    MissingExtraError
        If plotly or Jinja2 is not installed.
    """
    snapshot = Snapshot.of(audit)
    template = _template()
    html = template.render(**_page(snapshot))
    return _write_whole(Path(path), html)


def _page(audit: Snapshot) -> dict[str, Any]:
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    card, summary = audit.card(), audit.summary()
    order = shared_order(audit.distances)
    zero_sensitivity = card.get("zero_sensitivity")
    has_reversals, has_taxonomy = len(audit.reversals()) > 0, len(audit.taxonomy()) > 0
    regime = summary.get("regime") or {}
    shown = {
        "sink": _sink_figures(audit),
        "reversals": _reversal_figures(audit) if has_reversals else [],
        "distances": _distance_figures(audit, order),
        "channels": _channel_figures(audit),
        "bands": _band_figures(audit),
    }
    return {
        "version": __version__,
        "model": plain(card.get("model") or summary.get("model") or "Attention arrays"),
        "measured": _measured(audit),
        "contents": [s for s in _SECTIONS if s[0] != "zero-rule" or zero_sensitivity],
        "verdict": verdict(audit),
        "key_figures": key_figures(audit),
        "regime": ": ".join(plain(regime[k]) for k in ("verdict", "why") if regime.get(k)),
        "figures": shown,
        "reversals": {
            "classical": tables.classical_table(audit),
            "every": tables.all_reversals_table(audit),
        }
        if has_reversals
        else None,
        "not_compared": ", ".join(metric_title(n) for n in summary.get("not_compared") or ()),
        "order_note": _order_note(order),
        "bands": tables.bands_table(audit),
        "taxonomy": {
            "main": tables.taxonomy_table(audit, main_pairs=True),
            "every": tables.taxonomy_table(audit),
        }
        if has_taxonomy
        else None,
        "zero_sensitivity": tables.node(zero_sensitivity, "Results by zero rule")
        if zero_sensitivity
        else None,
        "card": tables.node({k: v for k, v in card.items() if k != "zero_sensitivity"}),
        "methods": methods_paragraph(audit),
        "guide": tables.guide_table(),
        "css": Markup(_resource("report.css")),
        "js": Markup(_resource("report.js")),
        "plot_config": Markup(json.dumps(CONFIG)),
        "plotly_js": Markup(get_plotlyjs().replace("</script", "<\\/script")),
    }


def _measured(audit: Snapshot) -> str:
    summary, card = audit.summary(), audit.card()
    sink = card.get("sink", summary.get("sink"))
    if isinstance(sink, Mapping):
        sink = sink.get("rule", sink.get("kind", next(iter(sink.values()), None)))
    parts = [
        count_of(int(summary[key]), key.removesuffix("s"))
        for key in ("layers", "heads", "documents")
        if key in summary
    ]
    if "rows" in summary:
        parts.append(f"{count_of(int(summary['rows']), 'query position')} per head")
    return ", ".join(parts) + f". Sink: {plain(sink)}."


def _sink_figures(audit: Snapshot) -> list[PageFigure]:
    mass = audit.profile["sink_mass"].to_numpy()
    known = mass[np.isfinite(mass)]
    spread = (
        f"Heads range from {number(known.min(), 2)} to {number(known.max(), 2)}, half of them "
        f"over {number(float(np.median(known)), 2)}."
        if known.size
        else "No head has a sink mass."
    )
    return [
        _figure(
            "figure-sink-grid",
            draw.sink_grid(audit),
            "Mean sink mass of every head.",
            f"{spread} Empty cells: no such head in that layer, or no usable row.",
        ),
        _figure(
            "figure-sink-by-layer",
            draw.sink_by_layer(audit),
            "Mean sink mass by layer.",
            "Grey dots are heads. Where heads of a layer lie far apart, the sink sets them apart "
            "for every metric that keeps it.",
        ),
    ]


def _reversal_figures(audit: Snapshot) -> list[PageFigure]:
    return [
        _figure(
            "figure-reversals",
            draw.reversal_grid(audit),
            "Reversal rates between all metrics and conventions, in percent.",
            "50 % is what two unrelated distances would give; 0 % means that they never disagree.",
        )
    ]


def _distance_figures(audit: Snapshot, order: HeadOrder) -> list[PageFigure]:
    shown = []
    for name in draw.MATRICES:
        if not has_matrix(audit.distances, name):
            continue
        pairs = condensed(matrix_of(audit.distances, name))
        finite = pairs[np.isfinite(pairs)]
        missing = pairs.size - finite.size
        caption = f"{_MATRIX_CAPTIONS[name]} Median over pairs {number(float(np.median(finite)))}."
        if missing:
            caption += f" {missing:,} of {pairs.size:,} pairs have no distance (blank)."
        title = metric_title(name)
        shown.append(
            _figure(
                f"figure-distances-{name.replace('/', '-')}",
                draw.head_matrix(audit, name, order),
                f"{title[0].upper()}{title[1:]}.",
                caption,
                linked=True,
            )
        )
    return shown


def _order_note(order: HeadOrder) -> str:
    note = (
        f"All maps share one order of heads, from average linkage on the "
        f"{metric_title(order.source)}: neighbours are alike by that metric."
        if order.source in _MATRIX_CAPTIONS
        else f"All maps share one order of heads: {order.source}."
    )
    note += " The strip on top shows layers, light for the first and dark for the last."
    note += " Each scale ends at its 98th percentile; zooming into one map zooms into all."
    if order.per_cell > 1:
        note += (
            f" There are too many heads to draw singly: each cell is the mean over up to "
            f"{order.per_cell} × {order.per_cell} heads that stand side by side "
            "in the order, and bears the name of its first head."
        )
    return note


def _channel_figures(audit: Snapshot) -> list[PageFigure]:
    shares = channel_shares(audit.distances)
    if not shares or not all(np.isfinite(s) for s in shares.values()):
        return []
    told = ", ".join(
        f"{percent(s)} {CHANNELS[n]}" for n, s in shares.items() if n != "within_sink" or s > 0
    )
    return [
        _figure(
            "figure-channels",
            draw.channels_overall(audit),
            "What sets heads apart.",
            f"Shares of the mean squared Aitchison distance over all pairs of heads: {told}. The "
            "squares add up exactly; these shares carry no interval.",
        ),
        _figure(
            "figure-channels-by-layer",
            draw.channels_by_layer(audit),
            "The same by layer.",
            "Heads of a layer against all other heads, in the colours above.",
        ),
    ]


def _band_figures(audit: Snapshot) -> list[PageFigure]:
    shown = []
    for metric in BAND_METRICS:
        found = band(audit.distances, metric)
        if found is None:
            continue
        title = metric_title(metric)
        caption = (
            f"At or under the ceiling: {percent(found.share_within)} of "
            f"{count_of(found.distance.size, 'pair')}; the median pair uses "
            f"{percent(found.median_use)} of its ceiling."
        )
        if found.distance.size > draw.MOST_POINTS:
            caption += f" A random {draw.MOST_POINTS:,} are drawn."
        if metric == "cosine":
            caption += " A pair's ceiling is the mean over its rows, so it leaves the line."
        shown.append(
            _figure(
                f"figure-band-{metric}",
                draw.band_plot(audit, metric),
                f"{title[0].upper()}{title[1:]}.",
                caption,
            )
        )
    return shown


def _figure(
    id: str, figure: go.Figure, title: str, caption: str, *, linked: bool = False
) -> PageFigure:
    from markupsafe import Markup

    # "<" would let a name in the data close the script element that holds it
    content = figure.to_json().replace("<", "\\u003c")
    height = int(figure.layout.height)
    return PageFigure(id, title, caption, f"{title} {caption}", height, Markup(content), linked)


def _template() -> Any:
    try:
        import plotly  # noqa: F401
        from jinja2 import Environment
    except ImportError as error:
        raise MissingExtraError(
            f"figures and reports need plotly and Jinja2, and {error.name} is not installed; "
            'type: pip install "sinkwise[report]"'
        ) from error
    environment = Environment(autoescape=True, trim_blocks=False, keep_trailing_newline=True)
    return environment.from_string(_resource("report.html.j2"))


def _resource(name: str) -> str:
    return files("sinkwise.report").joinpath(name).read_text(encoding="utf-8")


def _write_whole(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
