"""``sinkwise collapse CKPT...``: entropy over checkpoints, split between sink and content."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sinkwise.cli.documents import locate_documents
from sinkwise.cli.model_inputs import check_folder
from sinkwise.cli.model_options import (
    AsJson,
    BatchSize,
    Device,
    Dtype,
    Out,
    Queries,
    Quiet,
    Resume,
    Seed,
    TrustRemoteCode,
)
from sinkwise.cli.options import check_zeros, parse_names, parse_queries, parse_sink
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
    from sinkwise.accumulate.intervals import Interval
    from sinkwise.studies.collapse import CollapseStudy
    from sinkwise.studies.collapse_records import EntropyShift

__all__ = ["collapse_command"]


def collapse_command(
    context: typer.Context,
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CKPT...",
            help="Folders or .safetensors files; or one folder that holds checkpoint-N or stepN; "
            "or one hub id with --revisions.",
            show_default=False,
        ),
    ],
    texts: Annotated[
        Path,
        typer.Option(
            "--texts",
            metavar="FILE",
            help="Documents: .txt (parted by blank lines), .jsonl ('text' in every line), or a "
            "folder of images for a vision model.",
            show_default=False,
        ),
    ],
    out: Out = None,
    revisions: Annotated[
        str | None,
        typer.Option(
            "--revisions",
            metavar="REV[,REV...]",
            help="Revisions of the hub id in order of training, such as step0,step1000.",
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            metavar="NAME",
            help="Folder or hub id of the tokenizer (or image processor) for all checkpoints. "
            "[default: each one's own]",
            show_default=False,
        ),
    ] = None,
    documents: Annotated[
        int | None,
        typer.Option(
            "--documents",
            metavar="N",
            min=1,
            help="Take the first N documents. [default: all]",
            show_default=False,
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            metavar="T",
            min=3,
            help="Cut each document to T tokens. [default: what the model takes]",
            show_default=False,
        ),
    ] = None,
    queries: Queries = "64",
    sink: Annotated[
        str,
        typer.Option(
            "--sink",
            metavar="first|found|INDEX[,INDEX...]",
            help="The sink: the first real token, what one checkpoint's rows show to be sinks "
            "(then held), or token positions counted from 0.",
        ),
    ] = "first",
    sink_at: Annotated[
        str | None,
        typer.Option(
            "--sink-at",
            metavar="CKPT",
            help="Name of the checkpoint at which --sink found looks. [default: the last]",
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
    peaked: Annotated[
        float,
        typer.Option(
            "--peaked",
            metavar="X",
            min=0,
            max=1,
            help="Flag heads whose content entropy over its maximum is below X.",
        ),
    ] = 0.1,
    uniform: Annotated[
        float,
        typer.Option(
            "--uniform", metavar="X", min=0, max=1, help="Flag heads where it is above X."
        ),
    ] = 0.95,
    level: Annotated[
        float,
        typer.Option("--level", metavar="P", help="Two-sided level of intervals over documents."),
    ] = 0.95,
    seed: Seed = 0,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    batch_size: BatchSize = None,
    trust_remote_code: TrustRemoteCode = False,
    resume: Resume = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Attribute changes of attention entropy over checkpoints: sink grown, or content sharpened?

    The same rows at every checkpoint, one checkpoint in memory at a time. Writes
    DIR/collapse.json and DIR/report.html, and four numbers of each row, so that any two
    checkpoints can be compared afterwards and others added with --resume.
    """
    if out is None:
        raise typer.BadParameter("say where to write: --out DIR", param_hint="--out")
    check_zeros(zeros)
    options: dict[str, Any] = {
        "revisions": () if revisions is None else parse_names(revisions, "--revisions"),
        "sink": parse_sink(sink),
        "sink_at": sink_at,
        "queries": parse_queries(queries),
        "max_length": max_length,
        "documents": documents,
        "seed": seed,
        "batch_size": batch_size,
        "dtype": dtype,
        "device": device,
        "trust_remote_code": trust_remote_code,
        "level": level,
        "peaked": peaked,
        "uniform": uniform,
    }
    silent = quiet or as_json
    again = command_line(context, resume=True)
    with plain_errors(), Progress("Documents of all checkpoints", shown=not silent) as progress:
        try:
            source = locate_documents(texts)
            check_folder(out, resume=resume, again=again)
            quiet_libraries()
            found = _study(
                checkpoints,
                _processor(tokenizer, source.kind, trust_remote_code),
                source.read(documents),
                **options,
                out=out,
                resume=resume,
                progress=progress,
            )
            page = _report(found, out)
        except KeyboardInterrupt:
            note(
                f"\nInterrupted; {progress.done} of {progress.total} documents are done. "
                f"To go on:\n  {again}"
            )
            raise typer.Exit(130) from None
    if as_json:
        print_json(found.to_json())
    elif not quiet:
        typer.echo(_short_summary(found, out, page))


def _study(*given: Any, **options: Any) -> CollapseStudy:
    try:
        import torch  # noqa: F401 - or it is missed after the documents were read

        from sinkwise.runs.collapse import collapse_study
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sinkwise"):
            raise
        raise MissingExtraError(
            f'running a model needs {error.name}: pip install "sinkwise[hf]"'
        ) from None
    return collapse_study(*given, **options)


def _processor(name: str | None, kind: str, trust_remote_code: bool) -> Any:
    if name is None:
        return None
    from sinkwise.capture.load import load_processor

    kind = "vision" if kind == "images" else "decoder"
    return load_processor(name, kind, trust_remote_code=trust_remote_code)


def _report(found: CollapseStudy, folder: Path) -> Path | None:
    try:
        return found.report(folder / "report.html")
    except MissingExtraError as error:
        note(f"No report was written: {error}\nThen: sinkwise report {folder}")
        return None


def _short_summary(found: CollapseStudy, folder: Path, page: Path | None) -> str:
    lines = [
        f"{len(found.names)} checkpoints, {len(found.heads)} heads, {found.n_rows} rows at each",
        "Change of entropy in nats, and what each channel made of it:",
        text_table(
            ("from", "to", "total", "sink", "content", "share of sink", "verdict", "mostly"),
            [_row(shift) for shift in _shown(found)],
        ),
        f"{found.overall.first} to {found.overall.second}: {found.overall.words}",
        f"Study:  {folder / 'collapse.json'}",
    ]
    if page is not None:
        lines.append(f"Report: {page}")
    return "\n".join(lines)


def _shown(found: CollapseStudy) -> list[EntropyShift]:
    shifts = list(found.changes())
    return shifts if len(shifts) == 1 else [*shifts, found.overall]


def _row(shift: EntropyShift) -> tuple[str, ...]:
    share = shift.shares["sink"]
    told = "withheld" if share.value != share.value else f"{100 * share.value:.0f} %"
    values = (shift.total, shift.sink, shift.content)
    return (
        shift.first,
        shift.second,
        *(_ends(value) for value in values),
        told,
        shift.verdict,
        shift.mostly.replace("_", " "),
    )


def _ends(found: Interval) -> str:
    """A value with its interval; alone where one document has none."""
    value = f"{found.value:+.3f}"
    return value if found.low != found.low else f"{value} [{found.low:+.3f}, {found.high:+.3f}]"
