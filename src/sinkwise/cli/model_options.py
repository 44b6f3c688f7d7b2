"""Flags shared by the commands that run a model on calibration texts and on held-out ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AsJson",
    "BatchSize",
    "Device",
    "Documents",
    "Dtype",
    "EvalTexts",
    "MaxLength",
    "Model",
    "Out",
    "Queries",
    "Quiet",
    "Resume",
    "Revision",
    "Seed",
    "Sink",
    "Texts",
    "TrustRemoteCode",
]

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A hub id, a folder, a GGUF file, or 'demo': SmolLM2-135M from its package.",
        show_default=False,
    ),
]
Texts = Annotated[
    Path | None,
    typer.Option(
        "--texts",
        metavar="FILE",
        help="Calibration documents, which choose: .txt (parted by blank lines), .jsonl ('text' "
        "in every line), or a folder of images for a vision model. 'demo' brings its own.",
        show_default=False,
    ),
]
EvalTexts = Annotated[
    Path | None,
    typer.Option(
        "--eval",
        metavar="FILE",
        help="Held-out documents, which judge; none of them among --texts.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder to write.", show_default=False),
]
Documents = Annotated[
    int | None,
    typer.Option(
        "--documents",
        metavar="N",
        min=1,
        help="Take the first N documents of --texts, and of --eval. [default: all]",
        show_default=False,
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        "--max-length",
        metavar="T",
        min=3,
        help="Cut each document to T tokens, one window. [default: what the model takes; 256 for "
        "the demo]",
        show_default=False,
    ),
]
Queries = Annotated[
    str,
    typer.Option(
        "--queries",
        metavar="N|all",
        help="Query rows of each calibration document, spread over its length.",
    ),
]
Sink = Annotated[
    str,
    typer.Option(
        "--sink",
        metavar="first|INDEX[,INDEX...]",
        help="The sink: the first real token, or token positions counted from 0.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="S", min=0, help="Seed of all random choices.")
]
Dtype = Annotated[
    str, typer.Option("--dtype", help="The model's dtype, e.g. bfloat16; logits are read in fp32.")
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        metavar="N",
        min=1,
        help="Calibration documents in one forward pass. [default: chosen]",
        show_default=False,
    ),
]
Revision = Annotated[
    str | None, typer.Option("--revision", help="Revision of a hub model.", show_default=False)
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with a hub model.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the run in DIR where it stopped.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the study's JSON on stdout, nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")]
