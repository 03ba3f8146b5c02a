"""Drawn lengths against the laws they are named after."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from loadtest import lengths
from loadtest.plan_workload import Empirical, Lengths, Lognormal, Uniform
from tierscope.errors import BadInputError


def drawn(asked: Lengths, count: int = 20_000, folder: Path = Path()) -> NDArray[np.int64]:
    return lengths.law(asked, folder=folder)(np.random.default_rng(5), count)


def test_a_lognormal_has_the_median_and_the_sigma_asked_for() -> None:
    made = drawn(Lognormal(median=100_000, sigma=0.8, maximum=10_000_000))
    logs = np.log(made / 100_000) / 0.8
    assert stats.kstest(logs, "norm").pvalue > 1e-3


@pytest.mark.parametrize(("minimum", "maximum"), [(50_000, 120_000), (99_000, 10_000_000), (1, 101_000)])
def test_bounds_cut_a_lognormal_as_drawing_again_would(minimum: int, maximum: int) -> None:
    made = drawn(Lognormal(median=100_000, sigma=0.8, minimum=minimum, maximum=maximum))
    assert minimum <= made.min() <= made.max() <= maximum
    rng = np.random.default_rng(6)
    again = np.rint(100_000 * np.exp(0.8 * rng.standard_normal(300_000)))
    again = again[(again >= minimum) & (again <= maximum)][:20_000]
    assert stats.ks_2samp(made, again).pvalue > 1e-3


def test_short_lengths_each_have_the_share_that_rounding_gives_them() -> None:
    made = drawn(Lognormal(median=3, sigma=0.5, minimum=1, maximum=6), 50_000)
    edges = (np.log(np.arange(0.5, 7) / 3)) / 0.5
    shares = np.diff(stats.norm.cdf(edges))
    counted = np.bincount(made, minlength=7)[1:]
    assert stats.chisquare(counted, shares / shares.sum() * 50_000).pvalue > 1e-3


@pytest.mark.parametrize(
    ("asked", "only"),
    [
        (Lognormal(median=70, sigma=0, minimum=70, maximum=70), 70),
        (Lognormal(median=7_000_000, sigma=4, minimum=7_000_000, maximum=7_000_000), 7_000_000),
        (Uniform(minimum=9, maximum=9), 9),
        (Empirical(values=(4,)), 4),
    ],
)
def test_where_bounds_leave_one_length_it_is_drawn(asked: Lengths, only: int) -> None:
    assert set(drawn(asked, 200).tolist()) == {only}


def test_uniform_lengths_are_uniform_bounds_included() -> None:
    made = drawn(Uniform(minimum=5, maximum=14))
    assert (made.min(), made.max()) == (5, 14)
    assert stats.chisquare(np.bincount(made)[5:]).pvalue > 1e-3


def test_empirical_lengths_come_as_often_as_they_are_listed(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("10\n20\n\n20\n 20 \n")
    for asked in (Empirical(values=(10, 20, 20, 20)), Empirical(file="l.txt")):
        made = drawn(asked, folder=tmp_path)
        assert set(made.tolist()) == {10, 20}
        assert stats.binomtest(int((made == 10).sum()), len(made), 0.25).pvalue > 1e-3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"10\nten\n", "l.txt:2: 'ten' is not allowed"),
        (b"10\n0\n", "l.txt:2: '0' is not allowed"),
        (b"10\n\n1.5\n", "l.txt:3: '1.5' is not allowed"),
        (b"10\n-3\n", "l.txt:2: '-3' is not allowed"),
        (b"10\n99999999999999999999\n", "l.txt:2: '99999999999999999999' is not allowed"),
        (b"\xff\xfe\n", "l.txt:1: "),
        (b"\n\n", "l.txt: holds no length"),
    ],
)
def test_a_file_that_holds_what_is_no_length_is_refused_with_its_line(
    tmp_path: Path, text: bytes, words: str
) -> None:
    (tmp_path / "l.txt").write_bytes(text)
    with pytest.raises(BadInputError) as caught:
        lengths.law(Empirical(file="l.txt"), folder=tmp_path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"l\.txt: cannot be read: No such file"):
        lengths.law(Empirical(file="l.txt"), folder=tmp_path)
