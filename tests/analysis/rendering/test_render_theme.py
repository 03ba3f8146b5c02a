"""Colours that everybody can tell apart, by published formulas: WCAG contrast, simulated colour blindness."""

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from analysis.rendering import theme

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
PROTANOPIA = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
TEXT_ON_GROUND = [
    *itertools.product(("ink", "muted", "link"), ("page", "card", "sunken")),
    ("good", "good-ground"),
    ("caution", "caution-ground"),
    ("caution", "page"),
    ("bad", "bad-ground"),
]
palettes = pytest.mark.parametrize("palette", [theme.LIGHT, theme.DARK], ids=["light", "dark"])


def linear(colour: str) -> np.ndarray:
    """Linear RGB of a hex colour (IEC 61966-2-1)."""
    srgb = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2.2 contrast ratio."""
    light, dark = sorted((float(linear(x) @ [0.2126, 0.7152, 0.0722]) for x in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of linear RGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = to_xyz @ np.clip(rgb, 0, 1) / [0.95047, 1.0, 1.08883]
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@palettes
@pytest.mark.parametrize(("text", "ground"), TEXT_ON_GROUND)
def test_text_stands_out_from_its_ground(palette: Mapping[str, str], text: str, ground: str) -> None:
    assert contrast(palette[text], palette[ground]) >= 4.5


@palettes
@pytest.mark.parametrize("mark", [f"tier-{k}" for k in range(1, 7)])
def test_marks_stand_out_from_their_ground(palette: Mapping[str, str], mark: str) -> None:
    assert contrast(palette[mark], palette["card"]) >= 3.0


@palettes
@pytest.mark.parametrize("eye", [np.eye(3), PROTANOPIA, DEUTERANOPIA], ids=["full", "protan", "deutan"])
def test_the_first_three_tiers_differ_in_colour_to_every_eye(
    palette: Mapping[str, str], eye: np.ndarray
) -> None:
    seen = [lab(eye @ linear(palette[f"tier-{k}"])) for k in (1, 2, 3)]
    for a, b in itertools.combinations(seen, 2):
        assert np.linalg.norm(a - b) > 15  # 2.3 is just noticeable


def test_as_many_tiers_as_a_plan_may_have_all_look_different() -> None:
    drawn = theme.looks([f"tier {k}" for k in range(16)])
    assert len(set(drawn.values())) == 16


def test_neighbouring_tiers_differ_in_more_than_colour() -> None:
    drawn = list(theme.looks([f"tier {k}" for k in range(16)]).values())
    for one, other in itertools.pairwise(drawn):
        assert one.shape != other.shape
        assert one.dash != other.dash


def test_both_palettes_fill_the_same_roles() -> None:
    assert theme.LIGHT.keys() == theme.DARK.keys()


def test_a_standalone_drawing_has_no_role_left_to_fill() -> None:
    assert theme.concrete('<path fill="var(--tier-1)"/>') == f'<path fill="{theme.LIGHT["tier-1"]}"/>'
