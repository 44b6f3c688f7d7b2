"""``sinkwise doctor``: what is installed, and which model families are read faithfully."""

from __future__ import annotations

import platform
from typing import Annotated, Any

import typer

from sinkwise import __version__
from sinkwise.cli.output import plain_errors, print_json, quiet_libraries

__all__ = ["doctor_command", "installed_extras"]

NO_FEATURE = frozenset({"all", "dev"})  # collections of other extras, and tools to build sinkwise


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Check what is installed, and the models.

    Which extras are there, and which model families are read faithfully: each family is built
    small, with random weights, offline, and the rows that sinkwise captures are compared with
    the attention weights the model itself returns.
    """
    with plain_errors():
        extras = installed_extras()
        found = {
            "sinkwise": __version__,
            "python": platform.python_version(),
            "extras": extras,
            "models": _models(extras),
        }
    if as_json:
        print_json(found)
    elif not quiet:
        typer.echo(_as_text(found))


def installed_extras() -> list[dict[str, Any]]:
    """Return for every extra its name, whether it is installed whole, and how to install it."""
    from importlib import metadata

    from packaging.requirements import Requirement

    distribution = metadata.distribution("sinkwise")
    requirements = [Requirement(line) for line in distribution.requires or ()]
    extras = []
    for name in distribution.metadata.get_all("Provides-Extra") or ():
        if name in NO_FEATURE:
            continue
        needed = [
            requirement
            for requirement in requirements
            if requirement.marker is not None
            and requirement.marker.evaluate({"extra": name})
            and not requirement.marker.evaluate({"extra": ""})
        ]
        missing = [str(requirement.name) for requirement in needed if not _is_met(requirement)]
        extras.append(
            {
                "name": name,
                "installed": not missing,
                "missing": missing,
                "install": f'pip install "sinkwise[{name}]"',
            }
        )
    return extras


def _is_met(requirement: Any) -> bool:
    from importlib import metadata

    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return False
    return bool(requirement.specifier.contains(version, prereleases=True))


def _models(extras: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("transformers") is None:
        return []
    quiet_libraries()
    from sinkwise.capture.doctor import check_families

    return [
        {"model_type": entry["model_type"], "status": entry["status"], "why": entry["why"]}
        for entry in check_families()
    ]


def _as_text(found: dict[str, Any]) -> str:
    lines = [f"sinkwise {found['sinkwise']}, Python {found['python']}", "", "Extras"]
    for extra in found["extras"]:
        state = (
            "installed"
            if extra["installed"]
            else f"lacks {', '.join(extra['missing'])}: {extra['install']}"
        )
        lines.append(f"  {extra['name']:<10} {state}")
    lines += ["", "Models (captured rows against the model's own attention weights)"]
    if not found["models"]:
        lines.append(
            '  not checked: PyTorch and transformers are absent: pip install "sinkwise[hf]"'
        )
    for model in found["models"]:
        why = f"  {model['why']}" if model["why"] else ""
        lines.append(f"  {model['model_type']:<16} {model['status']:<9}{why}")
    return "\n".join(lines)
