"""The page: complete, self-contained, safe with hostile names, written whole."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.errors import MissingExtraError
from sinkwise.report.page import write_report
from sinkwise.report.sections import ORDER

HERE = Path(__file__).parent
SECTIONS = [name.replace("_", "-") for name in ORDER]
LOADING = {"src", "href", "srcset", "action", "poster", "data", "background", "xlink:href"}


class Page(HTMLParser):
    """Elements, visible text, styles and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.visible: list[str] = []
        self.styles: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = tag

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data):
        if self._inside == "style":
            self.styles.append(data)
        elif self._inside == "script":
            self.scripts.append((self.tags[-1][1], data))
        else:
            self.visible.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.visible)

    @property
    def figures(self) -> dict[str, dict]:
        found: dict[str, str] = {}
        for attributes, data in self.scripts:
            if "data-figure" in attributes:
                name = attributes["data-figure"]
                found[name] = found.get(name, "") + data
        return {name: json.loads(data) for name, data in found.items()}


def read(audit, folder: Path) -> Page:
    return Page(write_report(audit, folder / "report.html").read_text(encoding="utf-8"))


def test_every_section_stands_in_reading_order_and_the_contents_link_to_it(middling, tmp_path):
    page = read(middling, tmp_path)
    assert [a["id"] for tag, a in page.tags if tag == "section"] == SECTIONS
    links = [a["href"] for tag, a in page.tags if tag == "a"]
    assert links == [f"#{s}" for s in SECTIONS]


def test_the_page_loads_nothing_from_elsewhere(middling, tmp_path):
    page = read(middling, tmp_path)
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        for name in LOADING & attributes.keys():
            assert attributes[name].startswith("#"), (tag, name, attributes[name][:80])
        assert not any(name.startswith("on") for name in attributes), tag
    assert not re.search(r"url\(|@import|http", "".join(page.styles))
    policy = next(a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_plotly_is_inline_once_and_its_share_button_is_left_out(middling, tmp_path):
    page = read(middling, tmp_path)
    large = [data for attributes, data in page.scripts if len(data) > 3_000_000]
    assert len(large) == 1
    assert len(large[0]) < 8_000_000
    config = next(json.loads(d) for a, d in page.scripts if a.get("id") == "plot-config")
    assert config["plotlyServerURL"] == ""
    assert "sendChartToCloud" not in json.dumps(config)
    assert config["modeBarButtons"]


def test_every_figure_has_its_place_and_a_text_alternative(middling, tmp_path):
    page = read(middling, tmp_path)
    places = {a["id"]: a for tag, a in page.tags if a.get("class") == "plot"}
    assert len(page.figures) > 12
    assert places.keys() == page.figures.keys()
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in places.values())
    assert dict(page.tags)["html"]["lang"] == "en"


def test_a_number_and_its_percent_sign_stay_on_one_line(middling, tmp_path):
    text = read(middling, tmp_path).text
    assert re.search(r"\d\u00a0%", text)
    assert not re.search(r"\d %", text)


def test_hostile_names_never_become_elements(hostile, tmp_path):
    page = read(hostile, tmp_path)
    tags = [tag for tag, _ in page.tags]
    assert "img" not in tags
    # one per figure, the settings, plotly itself and the page's own script
    assert tags.count("script") == len(page.figures) + 3
    assert "<script>alert(1)</script>" in page.text  # shown as text, not lost
    for figure in page.figures.values():
        for text in strings(figure):
            assert "<script" not in text, text[:100]


def test_hostile_names_are_escaped_in_plotly_labels(hostile, tmp_path):
    figures = read(hostile, tmp_path).figures
    for name in ("figure-sink-grid", "figure-distances-content", "figure-band-cosine"):
        assert any("&lt;script&gt;alert(1)" in text for text in strings(figures[name])), name
    assert any("&lt;script&gt;" in text for text in strings(figures["figure-reversals"]))


def test_a_closing_script_tag_in_a_label_stays_inside_its_json(middling, tmp_path, monkeypatch):
    import plotly.graph_objects as go

    # neither plotly's own escaping nor that of labels may be the only guard
    escaped = go.Figure.to_json

    def bare(self):
        # plotly hides "<", ">" and "/" as \\u003c and the like: undo that
        return re.sub(r"\\u00(3c|3e|2f)", lambda m: chr(int(m[1], 16)), escaped(self))

    monkeypatch.setattr(go.Figure, "to_json", bare)
    monkeypatch.setattr("sinkwise.report.wording.html.escape", lambda text, quote: text)
    labels = ["</script><b>"] * middling.profile.sizes["head"]
    audit = middling.renamed(labels)
    text = write_report(audit, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "</script><b>" not in text
    assert all(figure["data"] for figure in Page(text).figures.values())


@pytest.mark.parametrize("name", ["middling", "uneven", "tiny", "with_nan", "hostile"])
def test_no_nan_reaches_the_reader(name, request, tmp_path):
    page = read(request.getfixturevalue(name), tmp_path)
    # as a word: "nan" inside other words is harmless
    assert not re.search(r"\b(nan|NaN|None|inf|NaT)\b", page.text)
    shown = [a["id"] for tag, a in page.tags if tag == "section"]
    assert shown == [s for s in SECTIONS if s in shown]
    if name == "middling":  # a section may be left out only where its study does not apply
        assert shown == SECTIONS


def test_two_heads_and_one_document_say_what_cannot_be_told(tiny, tmp_path):
    text = read(tiny, tmp_path).text
    assert "Fewer than three heads" in text
    assert "Too few heads to group" in text
    assert "1 layer, 2 heads, 1 document" in text
    assert "no interval" in text


def test_a_sink_set_of_several_keys_has_no_bands(middling, tmp_path):
    audit = middling.but(
        distances=middling.distances.drop_vars(["larger_content_mass", "cosine_ceiling"]),
        card={**middling.card(), "sink": "virtual", "zero_sensitivity": None},
    )
    page = read(audit, tmp_path)
    assert "No closed-form ceiling applies" in page.text
    assert "Sink: virtual" in page.text
    assert not any(name.startswith("figure-band") for name in page.figures)
    assert "zero-rule" not in [a.get("id") for _, a in page.tags]
    assert "#zero-rule" not in [a.get("href") for _, a in page.tags]


def test_the_heat_maps_hold_the_distances_in_one_shared_order(middling, tmp_path):
    figures = read(middling, tmp_path).figures
    maps = {n: f for n, f in figures.items() if n.startswith("figure-distances-")}
    assert len(maps) == 4
    orders = {tuple(f["data"][0]["x"]) for f in maps.values()}
    assert len(orders) == 1
    labels = middling.distances["label"].to_numpy().tolist()
    order = [labels.index(name) for name in orders.pop()]
    z = maps["figure-distances-content"]["data"][0]["z"]
    cells = np.frombuffer(base64.b64decode(z["bdata"]), dtype="<f4").reshape(30, 30)
    expected = middling.distances["content"].to_numpy()[np.ix_(order, order)]
    np.testing.assert_array_equal(cells, expected.astype(np.float32))


def test_the_page_stays_under_ten_megabytes_with_many_heads(crowded, tmp_path):
    path = write_report(crowded, tmp_path / "report.html")
    assert path.stat().st_size < 10e6
    assert "too many heads to draw singly" in path.read_text(encoding="utf-8")


def test_the_same_audit_gives_the_same_bytes(middling, tmp_path):
    first = write_report(middling, tmp_path / "first.html").read_bytes()
    assert first == write_report(middling, tmp_path / "second.html").read_bytes()


def test_a_failed_write_leaves_the_old_page_and_no_remains(tiny, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(self, target):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(tiny, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("missing", ["plotly", "jinja2"])
def test_a_missing_extra_names_the_line_that_installs_it(missing, tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=re.escape('pip install "sinkwise[report]"')):
        write_report(tiny, tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_a_report_is_written_without_torch(tmp_path):
    z = np.random.default_rng(0).normal(size=(2, 3, 2, 4))
    sw.audit(sw.rows(z, sink="first", logits=True), out=tmp_path / "run")
    script = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'transformers'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import sinkwise as sw\n"
        "sw.open_audit(sys.argv[1]).report(sys.argv[2])\n"
        "assert not {'torch', 'transformers', 'jax', 'numba'} & sys.modules.keys()\n"
    )
    target = tmp_path / "report.html"
    command = [sys.executable, "-c", script, str(tmp_path / "run"), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert target.stat().st_size > 4e6


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="needs chromium to run the page's scripts"
)
def test_a_browser_draws_every_figure_without_complaint(hostile, tmp_path):
    path = write_report(hostile, tmp_path / "report.html")
    command = [
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *("--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr"),
        *("--v=0", "--virtual-time-budget=8000", "--dump-dom", path.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    drawn = re.findall(r'class="plot js-plotly-plot"', done.stdout)
    assert len(drawn) == len(Page(path.read_text(encoding="utf-8")).figures)


def strings(value):
    """Yield every string inside a JSON-like value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)
