"""How many bytes a capture will hold, counted before any are allocated."""

from __future__ import annotations

from pathlib import Path

from sinkwise.errors import MemoryBudgetError

__all__ = ["available_bytes", "default_budget", "require_budget", "row_bytes"]

_SHARE_OF_AVAILABLE = 0.6


def available_bytes() -> int | None:
    """Return the memory this process may still take, or ``None`` where the system doesn't say."""
    known = [size for size in (_system_available(), _control_group_available()) if size is not None]
    return min(known, default=None)


def default_budget() -> int | None:
    """Return 60 % of the available memory in bytes, or ``None`` where that is unknown."""
    available = available_bytes()
    return None if available is None else int(available * _SHARE_OF_AVAILABLE)


def row_bytes(heads: int, queries: int, keys: int) -> int:
    """Return the bytes of one document's float32 logits and bool support."""
    return heads * queries * keys * 4 + queries * keys


def require_budget(need: int, budget: int | None, *, heads: int, queries: int, keys: int) -> None:
    """Raise when one document needs more than the budget.

    Raises
    ------
    MemoryBudgetError
        With the number of bytes, what they are made of, and what to change.
    """
    if budget is None or need <= budget:
        return
    fewer = max(1, int(queries * budget / need))
    raise MemoryBudgetError(
        f"one document needs {_readable(need)} for its rows ({heads} heads x {queries} queries x "
        f"{keys} keys x 4 bytes), the budget is {_readable(budget)}: pass queries={fewer} or a "
        "smaller max_length, or raise memory_budget (bytes; by default 60 % of the available "
        "memory)"
    )


def _readable(size: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def _system_available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        import psutil
    except ImportError:
        return None
    return int(psutil.virtual_memory().available)


def _control_group_available() -> int | None:
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        return None if limit == "max" else int(limit) - _control_group_used(group)
    except (OSError, ValueError):
        return None


def _control_group_used(group: Path) -> int:
    """Memory in use, less the file cache that the kernel gives back when asked."""
    used = int((group / "memory.current").read_text())
    for line in (group / "memory.stat").read_text().splitlines():
        name, _, size = line.partition(" ")
        if name == "inactive_file":
            used -= int(size)
    return used
