"""Which estimator answers which question, when it is safe, when it misleads, what to report.

The one source of the guide: ``sinkwise guide``, ``docs/guide.md`` and every report show it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GUIDE", "Advice", "guide_markdown"]


@dataclass(frozen=True)
class Advice:
    """One question with the estimator that answers it.

    Attributes
    ----------
    question
        What the reader wants to know.
    estimator
        What answers it, with the call.
    safe
        When the answer can be relied on.
    misleads
        How it goes wrong.
    report
        What a paper has to say beside the number.
    """

    question: str
    estimator: str
    safe: str
    misleads: str
    report: str


GUIDE = (
    Advice(
        "How much attention goes to the sink?",
        "sink mass; sink balance for its log-ratio form",
        "Sink mass always. The balance where no weight rounded to 0.",
        "The balance compares the sink with the geometric mean of the content, so it also moves "
        "when faint keys grow fainter. The mean mass is not the share of heads above a threshold.",
        "The sink set, the lengths and query rows, the mean with its interval over documents, and "
        "the share of heads over 0.3 and 0.8 as a number of its own.",
    ),
    Advice(
        "Where is the sink?",
        "sinks found from the data: mean mass of each position, share of heads over 0.3 and 0.8",
        "With several documents, and a look at secondary sinks and single layers.",
        "The first token need not be it: models without a beginning token, and vision models, "
        "whose sinks are often background patches.",
        "The positions and tokens found, by layer, and the set used in the study.",
    ),
    Advice(
        "Does my conclusion depend on which keys count as the sink?",
        "the same verdicts under several sink sets (first, first four, beginning token, found)",
        "When all the sets are judged on the same rows.",
        "A set that misses the real sink leaves it in the content, where it dominates every "
        "content measure.",
        "Every set tried, and what changed between them, not only the set that was kept.",
    ),
    Advice(
        "Do two heads look at the same content, whatever goes to the sink?",
        "content distance (which keys and how sharply), content angle (which keys alone)",
        "Rows from logits, on the same queries and keys.",
        "Unweighted log-ratios count a faint key as much as a strong one. The distance calls flat "
        "heads alike; the angle says nothing of sharpness and is noisy for flat heads. Heads "
        "that both look at recent keys are alike by position alone.",
        "Both of them; raw or per part; the zero rule; the positional null beside.",
    ),
    Advice(
        "Do two heads put their weight in the same places, sink included?",
        "JS divergence, cosine or Euclidean distance, sink kept",
        "When sink masses are alike across heads, or when the sink is part of the question.",
        "When sinks are strong all three shrink together: a small distance then says that both "
        "heads have a sink, not that they read alike.",
        "The word 'kept', the sink masses, and the ceiling that they set to the distance.",
    ),
    Advice(
        "The same, among the content that remains?",
        "JS divergence, cosine or Euclidean distance, sink dropped",
        "When enough mass is left on content.",
        "For a head with almost all its mass on the sink, the content compared may be a millionth "
        "of what it reads.",
        "The word 'dropped', and how much mass is left on content.",
    ),
    Advice(
        "Does my conclusion depend on the convention?",
        "reversal rate, kept against dropped",
        "With an interval and the rate among resolved verdicts.",
        "Flips among near-ties are harmless and counted all the same; noise in few documents "
        "flips verdicts by itself.",
        "Rate, interval and bias; the resolved rate and the share resolved; the margin-weighted "
        "and nearest-neighbour forms; the smallest rate that this many documents can tell from 0.",
    ),
    Advice(
        "Can sink masses alone explain that kept distances are small?",
        "bands: closed-form ceilings of kept distances from each row's sink masses",
        "With one sink key, the ceilings averaged over rows.",
        "A ceiling at the mean sink mass is false, and for sinks of several keys there is none. "
        "A pair near its ceiling is not shown to be alike.",
        "The share of head pairs inside the band, and how much of the ranking is left within it.",
    ),
    Advice(
        "What is it that sets two heads apart?",
        "three channels: sink balance, dispersion and direction, which add up to the squared "
        "Aitchison distance",
        "In root-mean-square form, in which the split survives averaging.",
        "Mean distances do not add up, only mean squares. A large share says where the distance "
        "lies in log-ratios, not what the model uses.",
        "All three shares with intervals, and which of them a classical verdict follows.",
    ),
    Advice(
        "Which groups do heads form?",
        "taxonomy: clusters by several methods, with their sizes and ceilings",
        "When an agreement is read against the ceiling of each side.",
        "Average linkage may put nearly all heads in one cluster; an agreement near 0 is then a "
        "fact about the linkage. Part of it may be scale: compare with the angle.",
        "Method, number of clusters, their sizes, the degeneracy flag, the adjusted Rand index "
        "with its interval, and each convention's ceiling from split halves.",
    ),
    Advice(
        "Can sink masses warn me that classical verdicts will flip?",
        "regime rule: spread of sink mass over heads, with frozen thresholds",
        "As a first look before the reversal rate is measured; never in its place.",
        "It describes and is no law: the published rule had one hit, one abstention and one miss. "
        "Noise over documents inflates the spread.",
        "The spread with its interval, the thresholds and where they come from, the record, and "
        "the resolved reversal rate that was then measured.",
    ),
    Advice(
        "Does sink mass grow with the size of the model?",
        "scaling: Theil-Sen and least squares of a statistic against log10 parameters",
        "Within a family, on the same documents, conventions and lengths, with five models or "
        "more.",
        "Across families a slope mixes size with tokenizer, data and training. With three or four "
        "models nearly any slope can be had.",
        "Every model with its family and value, both slopes with intervals, and the conventions "
        "that all the cards share.",
    ),
    Advice(
        "What did a setting change (dtype, length, beginning token, prompts)?",
        "compare: two runs of one model, differences with intervals, paired by document",
        "On the same documents, one setting apart.",
        "Two cards that differ in more than the setting. A change of the rank order of distances "
        "can be noise alone: read it beside split halves of each run.",
        "Every difference of the two cards, how many heads changed after correction for "
        "multiplicity, and the reversal rate between the runs beside what noise gives.",
    ),
    Advice(
        "Did entropy fall because content sharpened?",
        "entropy split into sink, content and within-sink parts",
        "On the same queries before and after.",
        "Total entropy also falls when the sink alone grows. A share means nothing where the total "
        "change cannot be told from 0.",
        "The total change and each part with its interval; shares only where the total is clear "
        "of 0.",
    ),
    Advice(
        "Which heads can be removed?",
        "none on this page: measure the damage (loss or agreement) and compare several scores",
        "With a dense baseline and held-out documents.",
        "A distance between patterns does not say what a head writes. On some models a classical "
        "score removes heads at less cost than content distance, on others it does not.",
        "The damage with its interval for every score tried, random removal among them, and the "
        "operation (zeroed, mean or removed).",
    ),
)
"""The guide's questions, in reading order."""


def guide_markdown() -> str:
    """Return the guide as the Markdown page ``docs/guide.md``.

    Examples
    --------
    >>> print(guide_markdown().splitlines()[0])
    # Which estimator answers which question
    """
    lines = [
        "# Which estimator answers which question",
        "",
        "<!-- Made by `sinkwise guide --markdown`; edit src/sinkwise/studies/guide.py instead. -->",
        "",
        "No measure here wins everywhere: each answers its own question, under conditions of its "
        "own.",
    ]
    for advice in GUIDE:
        lines += [
            "",
            f"## {advice.question}",
            "",
            f"- **Estimator**: {advice.estimator}.",
            f"- **Safe**: {advice.safe}",
            f"- **Misleads**: {advice.misleads}",
            f"- **Report**: {advice.report}",
        ]
    return "\n".join(lines) + "\n"
