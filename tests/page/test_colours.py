"""Are the colours of the heap told apart by everybody, in both themes?

Colour vision is simulated by the matrices of G. M. Machado, M. M. Oliveira and L. A. F. Fernandes,
"A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009), at full severity;
differences are CIEDE2000 (G. Sharma, W. Wu and E. N. Dalal, 2005).
"""

from __future__ import annotations

import itertools
import re
from math import atan2, cos, degrees, exp, hypot, radians, sin, sqrt

import numpy as np
import pytest

from support import gallery
from support.browser import Open

CATEGORIES = (
    "parameter",
    "gradient",
    "optimizer-state",
    "activation",
    "input",
    "other",
    "several",
    "garbage",
)
VISION = {
    "normal": np.eye(3),
    "protan": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deutan": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritan": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
Lab = tuple[float, float, float]


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(number) for number in re.findall(r"\d+", colour)[:3]]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> Lab:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return (float(116 * y - 16), float(500 * (x - y)), float(200 * (y - z)))


def difference(one: Lab, other: Lab) -> float:
    """CIEDE2000."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = ((hypot(a1, b1) + hypot(a2, b2)) / 2) ** 7
    stretch = 1.5 - 0.5 * sqrt(mean / (mean + 25**7))
    c1, c2 = hypot(a1 * stretch, b1), hypot(a2 * stretch, b2)
    h1, h2 = (degrees(atan2(b, a * stretch)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    hue = h1 + turn / 2 if c1 * c2 else h1 + h2
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    weight = (
        1
        - 0.17 * cos(radians(hue - 30))
        + 0.24 * cos(radians(2 * hue))
        + 0.32 * cos(radians(3 * hue + 6))
        - 0.20 * cos(radians(4 * hue - 63))
    )
    of_l = (l2 - l1) / (1 + 0.015 * (lightness - 50) ** 2 / sqrt(20 + (lightness - 50) ** 2))
    of_c = (c2 - c1) / (1 + 0.045 * chroma)
    of_h = 2 * sqrt(c1 * c2) * sin(radians(turn / 2)) / (1 + 0.015 * chroma * weight)
    bend = 60 * exp(-((((hue % 360) - 275) / 25) ** 2))
    rotation = -sin(radians(bend)) * 2 * sqrt(chroma**7 / (chroma**7 + 25**7))
    return sqrt(of_l**2 + of_c**2 + of_h**2 + rotation * of_c * of_h)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # From the test data of Sharma, Wu and Dalal.
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((90.8027, -2.0831, 1.4410), (91.1528, -1.6435, 0.0447), 1.4441),
    ],
)
def test_the_difference_is_that_of_the_paper(one: Lab, other: Lab, expected: float) -> None:
    assert difference(one, other) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("vision", list(VISION))
def test_any_two_categories_are_told_apart(open_page: Open, scheme: str, vision: str) -> None:
    opened = open_page(gallery.device_memory().to_html(), color_scheme=scheme)
    colours = {
        name: opened.page.evaluate(
            """name => {
              const probe = document.body.appendChild(document.createElement("i"));
              probe.style.color = `var(--${name})`;
              return getComputedStyle(probe).color;
            }""",
            name,
        )
        for name in CATEGORIES
    }
    assert len(set(colours.values())) == len(CATEGORIES)
    seen = {name: lab(VISION[vision] @ linear(colour)) for name, colour in colours.items()}
    for one, other in itertools.combinations(CATEGORIES, 2):
        apart = difference(seen[one], seen[other])
        assert apart >= 10, f"{one} and {other}: {apart:.1f}"
