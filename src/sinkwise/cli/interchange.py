"""``sinkwise interchange MODEL``: heads attend with other heads' patterns; what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sinkwise.cli.documents import locate_documents
from sinkwise.cli.model_inputs import check_folder, load, read_documents
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
from sinkwise.cli.output import (
    Progress,
    command_line,
    note,
    plain_errors,
    print_json,
    quiet_libraries,
)
from sinkwise.cli.tables import text_table
from sinkwise.errors import MissingExtraError

if TYPE_CHECKING:
    from sinkwise.studies.interchange import InterchangeStudy

__all__ = ["interchange_command"]

DEMO_OUT = Path("runs/demo-interchange")
DEMO_CALIBRATION = 8
DEMO_MAX_LENGTH = 256
METRICS = (
    "content,content/geometric_weights,content_angle,js_divergence/kept,js_divergence/dropped,"
    "cosine/kept"
)


def interchange_command(
    context: typer.Context,
    model: Model,
    texts: Texts = None,
    eval_texts: EvalTexts = None,
    metrics: Annotated[
        str,
        typer.Option(
            "--metric",
            metavar="NAME[,NAME...]",
            help="Distances whose closest pairs exchange; random pairs are always there.",
        ),
    ] = METRICS,
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
        "metrics": parse_names(metrics, "--metric"),
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
    own_texts = demo and texts is None and eval_texts is None
    if not own_texts:
        for flag, given, what in (
            ("--texts", texts, "calibration"),
            ("--eval", eval_texts, "held-out"),
        ):
            if given is None:
                raise typer.BadParameter(
                    f"say which {what} documents to read: {flag} FILE (only 'demo' brings its own)",
                    param_hint=flag,
                )
    if out is None and not demo:
        raise typer.BadParameter("say where to write: --out DIR", param_hint="--out")
    folder = out or DEMO_OUT
    silent = quiet or as_json
    with plain_errors(), Progress("Steps", shown=not silent) as progress:
        try:
            sources = [None if p is None else locate_documents(p) for p in (texts, eval_texts)]
            check_folder(folder, resume=resume, again=command_line(context, resume=True))
            quiet_libraries()
            note(f"Loading {model} ...", quiet=silent)
            loaded = load(model, dtype, device, revision, trust_remote_code)
            from sinkwise.runs.interchange import interchange_study

            calibration, held_out = (
                read_documents(source, None, kind=loaded.kind, model=model, flag=flag)
                for source, flag in zip(sources, ("--texts", "--eval"), strict=True)
            )
            if own_texts:
                calibration, held_out = (
                    calibration[:DEMO_CALIBRATION],
                    held_out[DEMO_CALIBRATION:],
                )
            found = interchange_study(
                loaded,
                None,
                calibration,
                held_out,
                **options,
                out=folder,
                resume=resume,
                progress=progress,
            )
            page = _report(folder)
        except KeyboardInterrupt:
            note(
                f"\nInterrupted; {progress.done} of {progress.total} steps are done. To go on:\n"
                f"  {command_line(context, resume=True)}"
            )
            raise typer.Exit(130) from None
    if as_json:
        print_json(found.to_json())
    elif not quiet:
        typer.echo(_short_summary(found, folder, page))


def _report(folder: Path) -> Path | None:
    from sinkwise.runs.audit import open_audit

    try:
        return open_audit(folder).report(folder / "report.html")
    except MissingExtraError as error:
        note(f"No report was written: {error}\nThen: sinkwise report {folder}")
        return None


def _short_summary(found: InterchangeStudy, folder: Path, page: Path | None) -> str:
    dense = found.dense_outcome["value"]
    lines = [
        f"{len(found.heads)} heads, {len(found.dense)} held-out documents; dense {found.measure} "
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
