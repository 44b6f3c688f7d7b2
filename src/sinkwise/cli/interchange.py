"""``sinkwise interchange MODEL``: heads attend with other heads' patterns; what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sinkwise.cli.held_out_study import DEMO_MAX_LENGTH, require_documents, run_study
from sinkwise.cli.model_options import (
    AsJson,
    BatchSize,
    Device,
    Documents,
    Dtype,
    EvalTexts,
    MaxLength,
    Model,
    Out,
    Queries,
    Quiet,
    Resume,
    Revision,
    Seed,
    Sink,
    Texts,
    TrustRemoteCode,
)
from sinkwise.cli.options import parse_names, parse_queries, parse_shares, parse_sink
from sinkwise.cli.output import print_json
from sinkwise.cli.tables import text_table

if TYPE_CHECKING:
    from sinkwise.studies.interchange import InterchangeStudy

__all__ = ["interchange_command"]

DEMO_OUT = Path("runs/demo-interchange")


def interchange_command(
    context: typer.Context,
    model: Model,
    texts: Texts = None,
    eval_texts: EvalTexts = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME[,NAME...]",
            help="Distances whose closest pairs exchange; the main ones when left out. Random "
            "pairs are always there.",
        ),
    ] = None,
    shares: Annotated[
        str,
        typer.Option(
            "--share", metavar="X[,X...]", help="Shares of the heads that borrow a pattern."
        ),
    ] = "0.1,0.2,0.3",
    scopes: Annotated[
        str,
        typer.Option(
            "--scope",
            metavar="model|layer",
            help="Pairs from anywhere in the model, or within a layer and as many from each.",
        ),
    ] = "model,layer",
    modes: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="whole|split",
            help="Borrow whole rows, or keep the own sink mass and borrow the content pattern.",
        ),
    ] = "whole,split",
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=0, help="Sets of random pairs.")
    ] = 5,
    single_pairs: Annotated[
        int,
        typer.Option(
            "--single-pairs",
            metavar="N",
            min=0,
            help="Pairs exchanged one at a time, for rank correlations; 0 for none.",
        ),
    ] = 48,
    out: Out = None,
    documents: Documents = None,
    max_length: MaxLength = None,
    queries: Queries = "64",
    sink: Sink = "first",
    seed: Seed = 0,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    batch_size: BatchSize = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    resume: Resume = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Let near heads attend with each other's patterns, and measure what that costs.

    A borrowing head keeps its values and its output. Which distance finds heads that can stand in
    for each other? Curves over the share exchanged stand beside random pairs, and single pairs
    give the rank correlation of every distance with the damage.

    Writes DIR/interchange.json and DIR/report.html beside the audit of --texts; each evaluated
    point is kept at once.
    """
    demo = model == "demo"
    options: dict[str, Any] = {
        **({"metrics": parse_names(metrics, "--metric")} if metrics is not None else {}),
        "shares": parse_shares(shares, "--share"),
        "scopes": parse_names(scopes, "--scope", ("model", "layer")),
        "modes": parse_names(modes, "--mode", ("whole", "split")),
        "seeds": seeds,
        "single_pairs": single_pairs,
        "sink": parse_sink(sink),
        "queries": parse_queries(queries),
        "max_length": max_length or (DEMO_MAX_LENGTH if demo else None),
        "documents": documents,
        "seed": seed,
        "batch_size": batch_size,
    }
    require_documents(model, texts, eval_texts, out)
    folder = out or DEMO_OUT

    def study(*given: Any, **named: Any) -> InterchangeStudy:
        from sinkwise.runs.interchange import interchange_study

        return interchange_study(*given, **named)

    found, page = run_study(context, study, folder, options=options)
    if as_json:
        print_json(found.to_json())
    elif not quiet:
        typer.echo(_short_summary(found, folder, page))


def _short_summary(found: InterchangeStudy, folder: Path, page: Path | None) -> str:
    dense = found.dense_outcome["value"]
    lines = [
        f"{len(found.heads)} heads, {len(found.dense)} held-out "
        f"document{'' if len(found.dense) == 1 else 's'}; dense {found.measure} "
        f"{dense:.4g}",
        f"{found.measure.capitalize()} after exchanging, by the distance that chose the pairs:",
        _curve_table(found),
    ]
    told = found.correlations()
    if len(told):
        lines.append("Rank correlation of distance and damage, over the donors of one borrower:")
        lines.append(
            text_table(
                ("mode", "distance", "correlation", "low", "high"),
                told[["mode", "metric", "within", "within_low", "within_high"]].values.tolist(),
            )
        )
    lines.append(f"Study:  {folder / 'interchange.json'}")
    if page is not None:
        lines.append(f"Report: {page}")
    return "\n".join(lines)


def _curve_table(found: InterchangeStudy) -> str:
    """One row a distance, mode and scope; one column a share; random pairs as a range."""
    curves = found.curves()
    shares = sorted(curves.share.unique())
    rows = []
    for (mode, scope, metric), group in curves.groupby(["mode", "scope", "metric"], sort=False):
        cells = []
        for share in shares:
            values = group.value[group.share == share]
            ends = sorted({f"{values.min():.4g}": 0, f"{values.max():.4g}": 0}, key=float)
            cells.append("-".join(ends) if len(values) else "")
        rows.append((mode, scope, metric, *cells))
    return text_table(("mode", "scope", "distance", *(f"{100 * s:g} %" for s in shares)), rows)
