"""One self-contained HTML page from an audit's saved results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkwise import __version__
from sinkwise.errors import MissingExtraError
from sinkwise.report.once import computed_once
from sinkwise.report.section import Figure, Section
from sinkwise.report.sections import make_sections
from sinkwise.report.theme import CONFIG
from sinkwise.report.wording import count_of, plain

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["write_page", "write_report"]


def write_report(audit: Audit, path: str | os.PathLike[str]) -> Path:
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
    RuntimeError
        If a section can't be made; it names the section.
    """
    _template()  # or an extra that is absent is missed after the work
    audit = computed_once(audit)
    return write_page(
        path,
        model=plain(audit.card().get("model") or "Attention arrays"),
        measured=_measured(audit),
        sections=make_sections(audit),
    )


def write_page(
    path: str | os.PathLike[str], *, model: str, measured: str, sections: Iterable[Section]
) -> Path:
    """Write sections as one HTML file and return its path; as :func:`write_report`.

    Parameters
    ----------
    path
        File to write; its folder is made if it does not exist.
    model
        What was measured, the page's heading.
    measured
        How much of it, in a line.
    sections
        In their order on the page.

    Raises
    ------
    MissingExtraError
        If plotly or Jinja2 is not installed.
    """
    template = _template()
    return _write_whole(Path(path), template.render(**_page(model, measured, sections)))


def _page(model: str, measured: str, sections: Iterable[Section]) -> dict[str, Any]:
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    return {
        "version": __version__,
        "model": model,
        "measured": measured,
        "sections": list(sections),
        "css": Markup(_resource("report.css")),
        "js": Markup(_resource("report.js")),
        "plot_config": Markup(json.dumps(CONFIG)),
        "plotly_js": Markup(get_plotlyjs().replace("</script", "<\\/script")),
    }


def _measured(audit: Audit) -> str:
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


def _plot_json(figure: Figure) -> Any:
    from markupsafe import Markup

    # "<" would let a name in the data close the script element that holds it
    return Markup(figure.plot.to_json().replace("<", "\\u003c"))


def _unbroken(value: Any) -> Any:
    """Keep a number and its percent sign on one line; what is markup already stays as it is."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


def _template() -> Any:
    try:
        import plotly  # noqa: F401
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError(
            f"figures and reports need plotly and Jinja2, and {error.name} is not installed; "
            'type: pip install "sinkwise[report]"'
        ) from error
    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_unbroken,
    )
    environment.filters["plot_json"] = _plot_json
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
