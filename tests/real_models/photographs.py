"""Pictures for a vision model: seeded crops of the two photographs that scikit-learn ships."""

from __future__ import annotations

import numpy as np

# what DINOv2 was trained with: means and deviations of ImageNet, a channel
MEAN = np.array([0.485, 0.456, 0.406])
DEVIATION = np.array([0.229, 0.224, 0.225])


def crops(count: int = 12, *, side: int = 224, seed: int = 0) -> list[np.ndarray]:
    """`count` normalised pictures ``(3, side, side)``, in turn of a temple and of a flower.

    Each is a square of between half and all of the photograph's height, set down anywhere in it.
    """
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(seed)
    photographs = [Image.fromarray(photograph) for photograph in load_sample_images().images]
    found = []
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        edge = int(rng.integers(photograph.height // 2, photograph.height + 1))
        left = int(rng.integers(0, photograph.width - edge + 1))
        top = int(rng.integers(0, photograph.height - edge + 1))
        square = photograph.crop((left, top, left + edge, top + edge))
        pixels = np.asarray(square.resize((side, side), Image.Resampling.BICUBIC)) / 255
        found.append(((pixels - MEAN) / DEVIATION).transpose(2, 0, 1).astype(np.float32))
    return found
