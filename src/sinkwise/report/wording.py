"""Numbers and names as a reader sees them, in tables, captions and plotly labels alike."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = [
    "MISSING",
    "count_of",
    "interval",
    "label",
    "level_words",
    "metric_title",
    "number",
    "percent",
    "plain",
    "sentence",
    "short_title",
]

MISSING = "–"
_METRICS = {
    "content": "content distance",
    "content_angle": "content angle",
    "aitchison": "Aitchison distance",
    "cosine": "cosine distance",
    "js_divergence": "JS divergence",
    "euclidean": "Euclidean distance",
    "aitchison_angle": "angle between whole rows",
}


def number(value: Any, decimals: int = 3) -> str:
    """Return a number rounded to `decimals` (fewer from 10 up), or a dash where there is none.

    Examples
    --------
    >>> number(0.28491), number(float("nan")), number(3), number(1.2e-7), number(10.0903)
    ('0.285', '–', '3', '1.2e-07', '10.09')
    """
    if not _is_number(value) or not math.isfinite(value):
        return MISSING
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if value != 0 and abs(value) < 0.5 * 10.0**-decimals:
        return f"{value:.2g}"
    if abs(value) >= 1e5:
        return f"{value:.3g}"
    magnitude = math.floor(math.log10(abs(value))) if abs(value) >= 10 else 0
    return f"{value:.{max(0, decimals - magnitude)}f}"


def interval(value: Any, low: Any, high: Any) -> str:
    """Return ``"0.285 (0.25–0.32)"``: bounds to the first digit of their half-width.

    Examples
    --------
    >>> interval(0.2849, 0.251, 0.319), interval(0.5, float("nan"), float("nan"))
    ('0.285 (0.25–0.32)', '0.500')
    >>> interval(-0.01, -0.09, 0.06)
    '-0.010 (-0.09 to 0.06)'
    """
    if not _has_bounds(low, high):
        return number(value)
    half = (high - low) / 2
    digits = 2 if half <= 0 else min(5, max(2, -math.floor(math.log10(half))))
    # adding 0 turns a negative zero into a plain one: a bound of -0.00 is none
    low, high = round(float(low), digits) + 0.0, round(float(high), digits) + 0.0
    joint = "–" if low >= 0 else " to "
    bounds = f"({low:.{digits}f}{joint}{high:.{digits}f})"
    return f"{number(value, max(3, min(digits, 4)))} {bounds}"


def percent(value: Any, low: Any = math.nan, high: Any = math.nan) -> str:
    """Return a share as a percentage, with its interval where there is one.

    Examples
    --------
    >>> percent(0.2849, 0.251, 0.319), percent(0.0042), percent(1.0), percent(0.9999)
    ('28 % (25–32)', '0.4 %', '100 %', '99.99 %')
    """
    if not _is_number(value) or not math.isfinite(value):
        return MISSING
    text = f"{_share(value)} %"
    return f"{text} ({_share(low)}–{_share(high)})" if _has_bounds(low, high) else text


def count_of(count: int, singular: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> count_of(1, "document"), count_of(36_315, "pair")
    ('1 document', '36,315 pairs')
    """
    return f"{count:,} {singular}{'' if count == 1 else 's'}"


def metric_title(name: str) -> str:
    """Return the words for a metric's name.

    Examples
    --------
    >>> metric_title("js_divergence/kept"), metric_title("content_angle")
    ('JS divergence, sink kept', 'content angle')
    >>> metric_title("content/geometric_weights"), metric_title("content/floor=0.001")
    ('content distance, geometric-mean weights', 'content distance, shares floored at 0.001')
    """
    metric, _, form = str(name).partition("/")
    words = _METRICS.get(metric, metric)
    if form.startswith("floor="):
        return f"{words}, shares floored at {form.removeprefix('floor=')}"
    if form == "geometric_weights":
        return f"{words}, geometric-mean weights"
    return f"{words}, sink {form}" if form else words


def level_words(audit: Audit) -> str:
    """Return the level of the audit's intervals, ``"95 %"`` where the card states none."""
    return f"{100 * float(audit.card().get('level') or 0.95):.4g} %"


def sentence(words: str) -> str:
    """Return `words` with a capital and a full stop, as a figure's title.

    Examples
    --------
    >>> sentence("content angle")
    'Content angle.'
    """
    return f"{words[:1].upper()}{words[1:]}."


def label(text: Any) -> str:
    """Escape `text` for plotly, which renders a subset of HTML inside labels and hover boxes.

    Examples
    --------
    >>> label("<b>L3H5</b>")
    '&lt;b&gt;L3H5&lt;/b&gt;'
    """
    return html.escape(str(text), quote=False)


def plain(value: Any) -> str:
    """Return any entry of the convention card as short text.

    Examples
    --------
    >>> plain(None), plain(True), plain([256, 256, 256]), plain([1, 2])
    ('not stated', 'yes', '256 (3 times)', '1, 2')
    """
    if value is None or (isinstance(value, str) and not value):
        return "not stated"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        return _listing([plain(v) for v in value])
    if _is_number(value):
        return _compact(value) if math.isfinite(value) else MISSING
    return str(value)


def _listing(items: list[str], shown: int = 12) -> str:
    if not items:
        return "none"
    if len(items) > 2 and len(set(items)) == 1:
        return f"{items[0]} ({len(items)} times)"
    more = f" … ({len(items):,} in all)" if len(items) > shown else ""
    return ", ".join(items[:shown]) + more


def _compact(value: float) -> str:
    return number(value) if isinstance(value, int | np.integer) else f"{value:.4g}"


def short_title(name: str) -> str:
    """Return the shortest words for a metric's name, for narrow columns and axes.

    Examples
    --------
    >>> short_title("js_divergence/kept"), short_title("content_angle")
    ('JS kept', 'content angle')
    >>> short_title("content/geometric_weights"), short_title("content/floor=0.001")
    ('content weighted', 'content floor 0.001')
    """
    metric, _, form = str(name).partition("/")
    words = {"js_divergence": "JS", "euclidean": "Euclid", "aitchison": "Aitchison"}
    form = {"geometric_weights": "weighted"}.get(form, form.replace("=", " "))
    return f"{words.get(metric, metric.replace('_', ' '))} {form}".strip()


def _share(value: float) -> str:
    scaled = 100 * value
    edge = min(abs(scaled), abs(100 - scaled))
    digits = 0 if edge >= 1 or edge == 0 else min(2, -math.floor(math.log10(edge)))
    return f"{scaled:.{digits}f}"


def _has_bounds(low: Any, high: Any) -> bool:
    return all(_is_number(b) and math.isfinite(b) for b in (low, high))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating)
