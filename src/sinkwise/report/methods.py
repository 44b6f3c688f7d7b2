"""The methods paragraph: an audit's conventions in sentences that a paper can take over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sinkwise.report.wording import count_of, level_words, plain

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["methods_paragraph"]


def methods_paragraph(audit: Audit) -> str:
    """Return a paragraph for a paper, from the convention card."""
    card, summary = audit.card(), audit.summary()
    version = (card.get("versions") or summary.get("versions") or {}).get("sinkwise")
    model = plain(card.get("model") or summary.get("model") or "the given attention arrays")
    details = [
        f"{word} {plain(card[key])}"
        for key, word in (
            ("revision", "revision"),
            ("dtype", "dtype"),
            ("quantization", "quantization"),
            ("attn_implementation", "attention implementation"),
            ("attention_implementation", "attention implementation"),
        )
        if card.get(key)
    ]
    excluded = summary.get("rows_excluded") or card.get("rows_excluded") or {}
    # a row that only some heads can't use stays for the others: it is listed, not summed
    left_out = sum(int(v) for k, v in excluded.items() if not str(k).endswith("_in_some_heads"))
    sentences = [
        f"Attention rows of {model}{_bracketed(details)} were analysed "
        f"with sinkwise{' ' + plain(version) if version else ''}: {_count(summary, 'heads')} "
        f"in {_count(summary, 'layers')}, "
        f"{_count(summary, 'rows', 'query positions')} from {_count(summary, 'documents')}"
        + (f" ({plain(card['queries'])} queries per document)" if card.get("queries") else "")
        + (f", each cut to {plain(card['max_length'])} tokens" if card.get("max_length") else "")
        + ".",
        f"Sink set: {_phrase(card.get('sink', summary.get('sink')))}. "
        f"Rounding zeros: {_zero_rule(card.get('zeros'))}.",
        f"Rows that could not be used were left out of every statistic ({left_out:,}"
        f"{_reasons(excluded)})."
        if any(excluded.values())
        else "No row had to be left out.",
        "Content is the attention on the remaining keys, re-closed; it was compared by the "
        "Aitchison distance and by the angle between centred log-ratio vectors. Cosine distance, "
        "Jensen–Shannon divergence (natural logarithms) and Euclidean distance were computed with "
        "the sink kept and with the sink dropped. Distances between heads are means over rows.",
    ]
    if len(audit.reversals()):
        sentences.append(
            "The reversal rate is the share of triples of heads on which two distances disagree "
            "about which of two heads is nearer to the third, exact over all triples."
        )
    if summary.get("documents", 0) and summary["documents"] > 1:
        sentences.append(
            f"Intervals are at the {level_words(audit)} level: for means the delete-one-document "
            "jackknife with t quantiles, for reversal rates random halves of the documents with a "
            "correction for bias."
        )
    else:
        sentences.append("One document gives no intervals.")
    if card.get("seed", summary.get("seed")) is not None:
        sentences.append(f"Seed {plain(card.get('seed', summary.get('seed')))}.")
    return " ".join(sentences)


def _bracketed(details: list[str]) -> str:
    return f" ({', '.join(details)})" if details else ""


def _phrase(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{str(k).replace('_', ' ')} {plain(v)}" for k, v in value.items())
    return plain(value)


def _zero_rule(rule: Any) -> str:
    known = {
        "error": "refused (none arose)",
        "exclude": "left out of log-ratios, part by part",
    }
    return known.get(rule, _phrase(rule)) if isinstance(rule, str) else _phrase(rule)


def _reasons(excluded: Mapping[str, Any]) -> str:
    listed = [f"{str(k).replace('_', ' ')}: {plain(v)}" for k, v in excluded.items() if v]
    return f"; {', '.join(listed)}" if listed else ""


def _count(summary: Mapping[str, Any], key: str, plural: str = "") -> str:
    plural = plural or key
    if key not in summary:
        return f"an unstated number of {plural}"
    return count_of(int(summary[key]), plural.removesuffix("s"))
