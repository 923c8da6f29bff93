"""The picture of a leaf in the documentation: twenty people, their groups, and gaps after reshuffling the groups.

Run: .venv/bin/python tools/leaf_picture.py docs/images/leaf.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

N_OWN, N_OTHER, N_SHUFFLES, N_BARS = 6, 14, 4_000, 25
GAP = -0.9
LEFT, WIDTH = 34, 320  # of the axis of scores
BASE, HEIGHT, START, SPAN = 252, 150, 414, 316  # of the histogram

HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 330" role="img" aria-labelledby="title description">
  <title id="title">A leaf, and the gaps of reshuffled groups</title>
  <desc id="description">{description}</desc>
  <style>
    text {{ font-family: system-ui, sans-serif; font-size: 13px; fill: #1f2933; }}
    .head {{ font-size: 16px; font-weight: 600; }}
    .small {{ font-size: 12px; fill: #4a5560; }}
    .letter {{ font-size: 11px; font-weight: 600; fill: #ffffff; text-anchor: middle; }}
    .card {{ fill: #ffffff; stroke: #c9d1d9; }}
    .A {{ fill: #00796b; }}
    .B {{ fill: #c05621; }}
    .bar {{ fill: #b9c4cf; }}
    .axis {{ stroke: #4a5560; stroke-width: 1; }}
    .actual {{ stroke: #c05621; stroke-width: 2.5; }}
    .mean {{ stroke: #1f2933; stroke-width: 2.5; }}
  </style>
  <rect width="760" height="330" rx="10" fill="#f4f6f8"/>
  <rect class="card" x="16" y="16" width="356" height="298" rx="8"/>
  <rect class="card" x="388" y="16" width="356" height="298" rx="8"/>
"""


def gaps(scores: np.ndarray, is_own: np.ndarray) -> np.ndarray:
    """Mean of B minus mean of A, for one or more sets of groups."""
    own = is_own @ scores / N_OWN
    return own - (scores.sum() - own * N_OWN) / N_OTHER


def people(scores: np.ndarray, is_own: np.ndarray, top: float, words: str) -> list[str]:
    """Everyone on the axis of scores: A above, B below, with a mark at the mean of each."""
    lines = [f'<text class="small" x="{LEFT - 4}" y="{top}">{words}</text>']
    for letter, chosen, y in (("A", ~is_own, top + 22), ("B", is_own, top + 48)):
        at = LEFT + 10 + (WIDTH - 20) * (scores - scores.min()) / np.ptp(scores)
        mean = at[chosen].mean()
        for x in at[chosen]:
            lines.append(f'<circle class="{letter}" cx="{x:.1f}" cy="{y}" r="8.5" fill-opacity="0.9"/>')
            lines.append(f'<text class="letter" x="{x:.1f}" y="{y + 4}">{letter}</text>')
        lines.append(f'<line class="mean" x1="{mean:.1f}" y1="{y - 13}" x2="{mean:.1f}" y2="{y + 13}"/>')
    return lines


def picture() -> str:
    """The picture as SVG."""
    rng = np.random.default_rng(7)
    is_own = np.arange(N_OWN + N_OTHER) < N_OWN
    quantiles = (np.arange(N_OTHER) + 0.5) / N_OTHER
    scores = np.r_[
        np.interp((np.arange(N_OWN) + 0.5) / N_OWN, quantiles, np.linspace(-1, 1, N_OTHER)) + GAP,
        np.linspace(-1, 1, N_OTHER),
    ] + rng.normal(scale=0.25, size=N_OWN + N_OTHER)
    shuffled = np.array([rng.permutation(is_own) for _ in range(N_SHUFFLES)])
    actual, all_gaps = float(gaps(scores, is_own)), gaps(scores, shuffled)
    n_as_large = int((np.abs(all_gaps) >= abs(actual) - 1e-9).sum())
    reach = 1.1 * float(np.abs(all_gaps).max())
    counts, edges = np.histogram(all_gaps, np.linspace(-reach, reach, N_BARS + 1))

    def x_of(gap: float) -> float:
        return START + SPAN * (gap + reach) / (2 * reach)

    minus = f"{actual:.2f}".replace("-", "\N{MINUS SIGN}")
    lines = ['<text class="head" x="30" y="46">A leaf: 20 people, alike finances</text>']
    lines += people(scores, is_own, 76, f"their groups: the gap, B minus A, is {minus}")
    for k, top in ((0, 156), (1, 236)):
        gap = f"{all_gaps[k]:.2f}".replace("-", "\N{MINUS SIGN}")
        lines += people(scores, shuffled[k], top, f"groups reshuffled: the gap is {gap}")
    lines += [
        f'<text class="head" x="402" y="46">Gaps of {N_SHUFFLES:,} shuffles</text>',
        f'<text class="small" x="402" y="68">as large as the actual one: {n_as_large} of them</text>',
    ]
    step = SPAN / N_BARS
    for count, edge in zip(counts, edges[:-1], strict=True):
        tall = HEIGHT * count / counts.max()
        lines.append(
            f'<rect class="bar" x="{x_of(edge) + 0.5:.1f}" y="{BASE - tall:.1f}" width="{step - 1:.1f}" '
            f'height="{tall:.1f}"/>'
        )
    at = x_of(actual)
    lines += [
        f'<line class="axis" x1="{START}" y1="{BASE}" x2="{START + SPAN}" y2="{BASE}"/>',
        f'<line class="actual" x1="{at:.1f}" y1="{BASE - HEIGHT}" x2="{at:.1f}" y2="{BASE}"/>',
        f'<text class="small" x="{at - 4:.1f}" y="{BASE - HEIGHT - 4}">actual gap {minus}</text>',
        f'<text class="small" x="{x_of(0):.1f}" y="{BASE + 18}" text-anchor="middle">0</text>',
        f'<text class="small" x="{x_of(0):.1f}" y="{BASE + 40}" text-anchor="middle">B minus A</text>',
    ]
    description = (
        "Left: scores of six people B and fourteen people A with alike finances, and the same people after their "
        f"groups were reshuffled twice. Right: histogram of the gaps of {N_SHUFFLES:,} shuffles, around 0. The actual "
        f"gap, {minus}, is at the left end: {n_as_large} shuffles have one as large."
    )
    return HEAD.format(description=description) + "".join(f"  {line}\n" for line in lines) + "</svg>\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
