"""Documents to train on, and documents that no model trained here has seen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sinkwise.cli.documents import demo_texts, locate_documents
from sinkwise.errors import RowError

__all__ = ["SplitTexts", "split_texts"]

CALIBRATION_DIGIT, EVALUATION_DIGIT = 4, 8
"""Of each ten documents, counted from 0, these two are never trained on."""


@dataclass(frozen=True)
class SplitTexts:
    """Documents parted by their number's last digit.

    Attributes
    ----------
    training
        What models are trained on.
    calibration
        Documents 4, 14, 24, ...: for audits and for scores that read text.
    evaluation
        Documents 8, 18, 28, ...: for what is claimed about a trained model.
    """

    training: tuple[str, ...]
    calibration: tuple[str, ...]
    evaluation: tuple[str, ...]

    def save_held_out(self, folder: Path) -> None:
        """Write ``calibration.txt`` and ``evaluation.txt``, documents parted by blank lines.

        A blank line within a document is left out: it would part it.
        """
        for name in ("calibration", "evaluation"):
            whole = ("\n".join(filter(str.strip, d.splitlines())) for d in getattr(self, name))
            (folder / f"{name}.txt").write_text("\n\n".join(whole) + "\n", encoding="utf-8")


def split_texts(file: Path | None = None) -> SplitTexts:
    """Split the documents of `file`, or of the bundled text.

    Parameters
    ----------
    file
        ``.txt`` with documents parted by blank lines, or ``.jsonl`` with ``text``; ``None`` for
        the 16 bundled chapters.

    Raises
    ------
    RowError
        If the file can't be read, or holds too few documents to hold any out.

    Examples
    --------
    >>> split = split_texts()
    >>> len(split.training), len(split.calibration), len(split.evaluation)
    (13, 2, 1)
    """
    documents = demo_texts() if file is None else locate_documents(file).read()
    if len(documents) <= EVALUATION_DIGIT:
        raise RowError(
            f"{file} holds {len(documents)} documents, expected at least {EVALUATION_DIGIT + 1}: "
            f"numbers {CALIBRATION_DIGIT} and {EVALUATION_DIGIT} of each ten, counted from 0, are "
            "held out. Part the documents by blank lines."
        )
    digits: dict[int, list[str]] = {digit: [] for digit in range(10)}
    for number, document in enumerate(documents):
        digits[number % 10].append(document)
    calibration, evaluation = digits.pop(CALIBRATION_DIGIT), digits.pop(EVALUATION_DIGIT)
    held_out = {*calibration, *evaluation}  # a document that stands twice in the file is held out
    training = [d for n, d in enumerate(documents) if n % 10 in digits and d not in held_out]
    return SplitTexts(tuple(training), tuple(calibration), tuple(evaluation))
