"""Which estimator answers which question, when it is safe and when it misleads."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GUIDE", "Advice"]


@dataclass(frozen=True)
class Advice:
    """One question with the estimator that answers it."""

    question: str
    estimator: str
    safe: str
    misleads: str


GUIDE = (
    Advice(
        "How much attention goes to the sink?",
        "sink mass; sink balance for its log-ratio form",
        "Sink mass always. The balance where no weight rounded to 0.",
        "The balance compares the sink with the geometric mean of the content, so it also moves "
        "when faint keys grow fainter.",
    ),
    Advice(
        "Do two heads look at the same content, whatever goes to the sink?",
        "content distance (which keys and how sharply), content angle (which keys alone)",
        "Rows from logits, on the same queries and keys.",
        "Unweighted log-ratios count a faint key as much as a strong one. The distance calls flat "
        "heads alike; the angle says nothing of sharpness and is noisy for flat heads.",
    ),
    Advice(
        "Do two heads put their weight in the same places, sink included?",
        "JS divergence, cosine or Euclidean distance, sink kept",
        "When sink masses are alike across heads, or when the sink is part of the question.",
        "When sinks are strong all three shrink together: a small distance then says that both "
        "heads have a sink, not that they read alike.",
    ),
    Advice(
        "The same, among the content that remains?",
        "JS divergence, cosine or Euclidean distance, sink dropped",
        "When enough mass is left on content.",
        "For a head with almost all its mass on the sink, the content compared may be a millionth "
        "of what it reads.",
    ),
    Advice(
        "Does my conclusion depend on the convention?",
        "reversal rate, kept against dropped",
        "With an interval and the rate among resolved verdicts.",
        "Flips among near-ties are harmless and counted all the same; noise in few documents "
        "flips verdicts by itself.",
    ),
    Advice(
        "Which groups do heads form?",
        "clusters by several methods, with their sizes and ceilings",
        "When an agreement is read against the ceiling of each side.",
        "Average linkage may put nearly all heads in one cluster; an agreement near 0 is then a "
        "fact about the linkage.",
    ),
    Advice(
        "Did entropy fall because content sharpened?",
        "entropy split into sink, content and within-sink parts",
        "On the same queries before and after.",
        "Total entropy also falls when the sink alone grows.",
    ),
    Advice(
        "Which heads can be removed?",
        "none on this page: measure the damage (loss or agreement) and compare several scores",
        "With a dense baseline and held-out documents.",
        "A distance between patterns does not say what a head writes. On some models a classical "
        "score removes heads at less cost than content distance, on others it does not.",
    ),
)
