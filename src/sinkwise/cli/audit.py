"""``sinkwise audit MODEL``: rows of a model, every distance, and what depends on the sink."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sinkwise.cli.documents import locate_documents
from sinkwise.cli.model_inputs import check_folder, load, read_documents
from sinkwise.cli.options import check_zeros, parse_queries, parse_sink, parse_sink_sets
from sinkwise.cli.output import (
    Progress,
    command_line,
    note,
    plain_errors,
    print_json,
    quiet_libraries,
)
from sinkwise.errors import MissingExtraError

__all__ = ["audit_command"]

DEMO_OUT = Path("runs/demo")
DEMO_DOCUMENTS = 16
DEMO_MAX_LENGTH = 256
DEMO_QUERIES = 32
DEMO_REPEATED = 4
QUERIES = 64
CLASSICAL = {"cosine": "cosine", "js_divergence": "Jensen-Shannon", "euclidean": "Euclidean"}


def audit_command(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A hub id, a folder, a GGUF file, or 'demo': SmolLM2-135M from its package.",
            show_default=False,
        ),
    ],
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            metavar="FILE",
            help="Documents: .txt (parted by blank lines), .jsonl ('text' in every line), "
            "or a folder of images for a vision model. 'demo' brings its own.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help=f"Folder to write; '{DEMO_OUT}' for the demo.",
            show_default=False,
        ),
    ] = None,
    documents: Annotated[
        int | None,
        typer.Option(
            "--documents",
            metavar="N",
            min=1,
            help=f"Take the first N documents. [default: all; {DEMO_DOCUMENTS} for the demo]",
            show_default=False,
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            metavar="T",
            min=3,
            help="Cut each document to T tokens. "
            f"[default: what the model takes; {DEMO_MAX_LENGTH} for the demo]",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(
            "--queries",
            metavar="N|all",
            help="Query rows of each document, spread over its length. "
            f"[default: {QUERIES}; {DEMO_QUERIES} for the demo]",
            show_default=False,
        ),
    ] = None,
    sink: Annotated[
        str,
        typer.Option(
            "--sink",
            metavar="first|found|INDEX[,INDEX...]",
            help="The sink: the first real token, what each document's own rows show to be its "
            "sinks, or token positions counted from 0.",
        ),
    ] = "first",
    sink_sets: Annotated[
        str,
        typer.Option(
            "--sink-sets",
            metavar="NAME[,NAME...]",
            help="Sum the same rows under these sink sets too: first, first4, bos, found; "
            "or 'none'.",
        ),
    ] = "first,first4,bos,found",
    repeated_tokens: Annotated[
        int | None,
        typer.Option(
            "--repeated-tokens",
            metavar="N",
            min=0,
            help="Also run N documents of one repeated token each: does position alone make the "
            f"sink? [default: 0; {DEMO_REPEATED} for the demo]",
            show_default=False,
        ),
    ] = None,
    zeros: Annotated[
        str,
        typer.Option(
            "--zeros",
            metavar="error",
            help="Rule for zeros. A model's rows come from logits, which have none.",
        ),
    ] = "error",
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", min=0, help="Seed of the choice of query rows.")
    ] = 0,
    dtype: Annotated[
        str,
        typer.Option("--dtype", help="The model's dtype, e.g. bfloat16; logits are read in fp32."),
    ] = "float32",
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")] = "cpu",
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            metavar="N",
            min=1,
            help="Documents in one forward pass. [default: chosen]",
            show_default=False,
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option("--revision", help="Revision of a hub model.", show_default=False),
    ] = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run code that comes with a hub model."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in DIR where it stopped.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json's content on stdout, nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Audit the attention heads of a model.

    Sink mass of every head, distances between all heads, and which verdicts hang on the sink.

    Writes DIR/summary.json, DIR/report.html and one block of sums for each document. The
    model keeps its fused attention and is left as it was.
    """
    demo = model == "demo"
    chosen_sink = parse_sink(sink)
    chosen_sets = parse_sink_sets(sink_sets)
    chosen_queries = parse_queries(queries or str(DEMO_QUERIES if demo else QUERIES))
    check_zeros(zeros)
    if texts is None and not demo:
        raise typer.BadParameter(
            "say which documents to read: --texts FILE (only 'demo' brings its own)",
            param_hint="--texts",
        )
    if out is None and not demo:
        raise typer.BadParameter("say where to write: --out DIR", param_hint="--out")
    folder = out or DEMO_OUT
    if demo:
        max_length = max_length or DEMO_MAX_LENGTH
        documents = documents or (DEMO_DOCUMENTS if texts is None else None)

    silent = quiet or as_json
    with plain_errors(), Progress("Documents", shown=not silent) as progress:
        try:
            source = None if texts is None else locate_documents(texts)
            check_folder(folder, resume=resume, again=command_line(context, resume=True))
            quiet_libraries()
            note(f"Loading {model} ...", quiet=silent)
            loaded = load(model, dtype, device, revision, trust_remote_code)
            from sinkwise.runs.audit import audit

            finished = audit(
                loaded.model,
                loaded.processor,
                read_documents(source, documents, kind=loaded.kind, model=model),
                sink=chosen_sink,
                sink_sets=chosen_sets,
                repeated_tokens=(DEMO_REPEATED if demo else 0)
                if repeated_tokens is None
                else repeated_tokens,
                queries=chosen_queries,
                max_length=max_length,
                documents=documents,
                seed=seed,
                batch_size=batch_size,
                out=folder,
                resume=resume,
                progress=progress,
                model_name=loaded.name,
                revision=loaded.revision,
            )
            page: Path | None = None
            try:
                page = finished.report(folder / "report.html")
            except MissingExtraError as error:
                note(f"No report was written: {error}\nThen: sinkwise report {folder}")
        except KeyboardInterrupt:
            note(
                f"\nInterrupted; {progress.done} documents are done. To go on:\n"
                f"  {command_line(context, resume=True)}"
            )
            raise typer.Exit(130) from None
    if as_json:
        print_json(finished.summary())
    elif not quiet:
        typer.echo(_short_summary(finished.summary(), folder, page))


def _short_summary(summary: Mapping[str, Any], folder: Path, page: Path | None) -> str:
    mass = summary["sink_mass"]
    lines = [
        f"{summary['model']}: {summary['heads']} heads, {summary['layers']} layers, "
        f"{summary['documents']} documents, {summary['rows']} rows",
        f"Sink mass  {_with_interval(mass['mean'], mass['low'], mass['high'])}",
        "Nearest-head verdicts that change when the sink is dropped:",
    ]
    rates = {(entry["first"], entry["second"]): entry for entry in summary["reversals"]}
    for name, title in CLASSICAL.items():
        kept, dropped = f"{name}/kept", f"{name}/dropped"
        entry = rates.get((kept, dropped)) or rates.get((dropped, kept))
        if entry is not None:
            rate = _with_interval(entry["rate"], entry["low"], entry["high"])
            lines.append(f"  {title:<15} {rate}")
    lines.append(f"Summary: {folder / 'summary.json'}")
    if page is not None:
        lines.append(f"Report:  {page}")
    return "\n".join(lines)


def _with_interval(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "not defined"
    if low is None or high is None:
        return f"{value:.3f}  (too few documents for an interval)"
    return f"{value:.3f}  [{low:.3f}, {high:.3f}]"
