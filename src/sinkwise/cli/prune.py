"""``sinkwise prune MODEL``: heads switched off by every score, with proof on other texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sinkwise.cli.held_out_study import DEMO_MAX_LENGTH, require_documents, run_study
from sinkwise.cli.model_options import (
    AsJson,
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

if TYPE_CHECKING:
    from sinkwise.studies.prune_study import PruneStudy

__all__ = ["prune_command"]

DEMO_OUT = Path("runs/demo-prune")


def prune_command(
    context: typer.Context,
    model: Model,
    texts: Texts = None,
    eval_texts: EvalTexts = None,
    scores: Annotated[
        str | None,
        typer.Option(
            "--score",
            metavar="NAME[,NAME...]",
            help="What chooses the heads; joint, single and pair scores when left out. Relative "
            "output norm, Michel's importance, flattest first and random heads are always there.",
        ),
    ] = None,
    sparsity: Annotated[
        str,
        typer.Option("--sparsity", metavar="X[,X...]", help="Shares of the heads to switch off."),
    ] = "0.1,0.2,0.3",
    scopes: Annotated[
        str,
        typer.Option(
            "--scope",
            metavar="model|layer",
            help="Heads from anywhere in the model, or as many from each layer.",
        ),
    ] = "model",
    operations: Annotated[
        str,
        typer.Option(
            "--operation",
            metavar="zero|mean",
            help="A head's output becomes 0, or its mean on the calibration documents.",
        ),
    ] = "zero",
    random_seeds: Annotated[
        int, typer.Option("--random-seeds", metavar="N", min=5, help="Random sets of heads.")
    ] = 5,
    leave_one_out_tokens: Annotated[
        int,
        typer.Option(
            "--leave-one-out-tokens",
            metavar="T",
            min=6,
            help="Tokens on which the score leave_one_out judges each head.",
        ),
    ] = 256,
    out: Out = None,
    documents: Documents = None,
    max_length: MaxLength = None,
    queries: Queries = "64",
    sink: Sink = "first",
    seed: Seed = 0,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    resume: Resume = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Choose heads by several scores, switch them off, and measure what that costs.

    The dense model comes first; every set of heads is held against it on documents that chose
    nothing, with an interval, beside random sets of the same size. No score is best on every
    model: the table says which was on this one.

    Writes DIR/prune.json and DIR/report.html beside the audit of --texts; each evaluated set is
    kept at once.
    """
    demo = model == "demo"
    require_documents(model, texts, eval_texts, out)
    options: dict[str, Any] = {
        **({"scores": parse_names(scores, "--score")} if scores is not None else {}),
        "sparsity": parse_shares(sparsity, "--sparsity"),
        "scope": parse_names(scopes, "--scope", ("model", "layer")),
        "operation": parse_names(operations, "--operation", ("zero", "mean")),
        "random_seeds": random_seeds,
        "leave_one_out_tokens": leave_one_out_tokens,
        "sink": parse_sink(sink),
        "queries": parse_queries(queries),
        "max_length": max_length or (DEMO_MAX_LENGTH if demo else None),
        "documents": documents,
        "seed": seed,
    }
    folder = out or DEMO_OUT

    def scores_are_known() -> None:
        from sinkwise.studies.head_scores import score_named

        for score in options.get("scores", ()):
            score_named(score)

    def study(*given: Any, **named: Any) -> PruneStudy:
        from sinkwise.runs.prune import prune_study

        return prune_study(*given, **named)

    found, page = run_study(context, study, folder, options=options, check=scores_are_known)
    if as_json:
        print_json(found.to_json())
    elif not quiet:
        typer.echo(_short_summary(found, folder, page))


def _short_summary(found: PruneStudy, folder: Path, page: Path | None) -> str:
    from sinkwise.cli.prune_table import summary_table

    lines = [summary_table(found), f"Study:  {folder / 'prune.json'}"]
    if page is not None:
        lines.append(f"Report: {page}")
    return "\n".join(lines)
