import inspect
import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from studies.related import (
    ProceduralMetric,
    explanation_disparity_auc,
    gpf_fae,
    procedural_metrics,
    ref,
    related_metrics,
    vef,
)

WEIGHTS = np.array([1.0, -0.5, 0.3])


def linear(X):
    return 1 / (1 + np.exp(-(X @ WEIGHTS)))


def draw(seed, n=400, n_groups=2):
    """People whose group plays no part in inputs, labels or model."""
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(n, 3)), rng.integers(0, n_groups, n)
    labels = (rng.random(n) < linear(X)).astype(np.int64)
    return X * WEIGHTS, linear(X), labels, group, X


def turned(attributions, group, code=1):
    """The same attributions with the first two features exchanged and shifted for one group."""
    swapped = attributions[:, [1, 0, 2]] + np.array([1.0, -1.0, 0.0])
    return np.where((group == code)[:, None], swapped, attributions)


# --- gpf_fae ---


def test_gpf_is_high_when_groups_are_explained_alike_and_small_when_not():
    attributions, scores, labels, group, X = draw(0)
    assert gpf_fae(attributions, scores, labels, group, X=X).value > 0.5
    other = gpf_fae(turned(attributions, group), scores, labels, group, X=X)
    assert other.value == other.p_value == pytest.approx(0.001)
    assert other.direction == "higher is more alike"


def test_gpf_seldom_falls_below_its_level_without_a_difference():
    values = []
    for seed in range(60):
        attributions, _, _, group, X = draw(seed, n=120)
        values.append(gpf_fae(attributions, None, None, group, X=X, random_state=seed, n_permutations=99).value)
    assert np.mean(np.array(values) <= 0.05) <= 0.05


def test_gpf_equals_a_plain_transcription_on_unambiguous_people():
    # Two far apart places with a person of each group in every one of them: everyone's nearest is known.
    rng = np.random.default_rng(1)
    X = np.repeat(np.arange(20.0) * 10, 2)[:, None]
    group = np.tile([0, 1], 20)
    attributions = rng.normal(size=(40, 2)) + 0.8 * group[:, None]
    found = gpf_fae(attributions, None, None, group, X=X, n_people=40, n_permutations=4999)
    # Everyone is drawn, so each side holds each of its people twice.
    sides = [np.repeat(attributions[group == code], 2, axis=0) for code in (0, 1)]
    width = np.median(cdist(*sides, "sqeuclidean"))

    def discrepancy(one, other):
        kernel = lambda a, b: np.exp(-cdist(a, b, "sqeuclidean") / width).mean()  # noqa: E731
        return kernel(one, one) + kernel(other, other) - 2 * kernel(one, other)

    pooled, at_least = np.concatenate(sides), 0
    for _ in range(1000):
        order = rng.permutation(80)
        at_least += discrepancy(pooled[order[:40]], pooled[order[40:]]) >= discrepancy(*sides)
    expected = (1 + at_least) / 1001
    assert found.value == pytest.approx(expected, abs=4 * np.sqrt(expected / 1000) + 0.001)


def test_constant_attributions_are_alike():
    _, _, _, group, X = draw(3)
    assert gpf_fae(np.ones((400, 3)), None, None, group, X=X).value == 1
    two_valued = np.where(np.arange(400) == np.flatnonzero(group == 1)[0], 1.0, 0.0)[:, None]
    assert gpf_fae(two_valued, None, None, group, X=X).value > 0.05


# --- ref and vef ---


def test_ref_and_vef_equal_a_slow_transcription_of_their_definitions():
    attributions, scores, labels, group, X = draw(4, n=150)
    top_k, share = 2, 0.3
    quality, masked = np.empty(150), np.empty(150)
    for i in range(150):
        row = X[i].copy()
        row[np.argsort(-np.abs(attributions[i]))[:top_k]] = 0
        masked[i] = linear(row[None])[0]
        quality[i] = max(scores[i], 1 - scores[i]) - max(masked[i], 1 - masked[i])
    best = np.argsort(-quality)[:45]
    shares = [np.isin(np.flatnonzero(group == code), best).mean() for code in (0, 1)]
    drops = []
    for code in (0, 1):
        members = np.flatnonzero(group == code)
        top = members[np.argsort(-quality[members])[: int(np.ceil(share * len(members)))]]
        right = (scores[top] >= 0.5) == labels[top]
        right_masked = (masked[top] >= 0.5) == labels[top]
        drops.append(right.mean() - right_masked.mean())
    options = {"X": X, "score_function": linear, "top_k": top_k, "top_share": share}
    assert ref(attributions, scores, labels, group, **options).value == pytest.approx(abs(shares[0] - shares[1]))
    found = vef(attributions, scores, labels, group, **options)
    assert found.value == pytest.approx(abs(drops[0] - drops[1]))
    assert found.p_value is None


def test_ref_rejects_at_about_its_level_without_a_difference_and_finds_one():
    p_values = []
    for seed in range(400):
        attributions, scores, _, group, X = draw(seed, n=200)
        p_values.append(ref(attributions, scores, None, group, X=X, score_function=linear).p_value)
    assert abs(np.mean(np.array(p_values) <= 0.05) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 400)
    attributions, scores, _, group, X = draw(0, n=2000)
    wrong = np.where((group == 1)[:, None], attributions[:, [2, 1, 0]], attributions)
    found = ref(wrong, scores, None, group, X=X, score_function=linear)
    assert found.p_value < 0.001
    assert found.direction == "lower is more alike"


def test_vef_finds_a_group_whose_explanations_matter_less():
    attributions, scores, _, group, X = draw(5, n=4000)
    wrong = np.where((group == 1)[:, None], np.array([0, 0, 1.0]), attributions)
    labels = (scores >= 0.5).astype(np.int64)
    # A mask away from 0 turns decisions over.
    options = {"X": X, "score_function": linear, "mask_value": [-3.0, 3.0, 0.0]}
    assert (
        vef(wrong, scores, labels, group, **options).value
        > 0.05 + vef(attributions, scores, labels, group, **options).value
    )


def test_tied_explanations_share_the_places_so_order_does_not_matter():
    attributions, _, labels, group, X = draw(6)
    rounded = np.round(X)
    order = np.random.default_rng(0).permutation(400)
    for metric in (ref, vef):
        before = metric(attributions, linear(rounded), labels, group, X=rounded, score_function=linear)
        after = metric(
            attributions[order],
            linear(rounded[order]),
            labels[order],
            group[order],
            X=rounded[order],
            score_function=linear,
        )
        assert before.value == pytest.approx(after.value)
    constant = ref(attributions, np.full(400, 0.5), labels, group, X=X, score_function=lambda X: np.full(len(X), 0.5))
    assert (constant.value, constant.p_value) == pytest.approx((0, 1))


def test_places_at_a_tie_are_shared_equally():
    # Masking leaves a score of one half, so quality grows with |x|: 2 people above, 8 tied for 2 places, 10 below.
    x = np.array([3.0, 3.5, *[2.0] * 6, 0.1, 0.2, *[2.0] * 2, *np.linspace(0.3, 1.0, 8)])[:, None]
    group = np.repeat([0, 1], 10)
    model = lambda X: 1 / (1 + np.exp(-X[:, 0]))  # noqa: E731
    found = ref(x, model(x), None, group, X=x, score_function=model, top_share=0.2)
    assert found.value == pytest.approx((2 + 6 * 2 / 8) / 10 - 2 * 2 / 8 / 10)


# --- explanation_disparity_auc ---


def test_inspector_cannot_tell_groups_that_are_alike_and_can_tell_those_that_are_not():
    attributions, _, _, group, _ = draw(7, n=1000)
    alike = explanation_disparity_auc(attributions, None, None, group)
    assert abs(alike.value - 0.5) < 0.1
    assert alike.p_value > 0.01
    apart = explanation_disparity_auc(turned(attributions, group), None, None, group)
    assert apart.value > 0.8
    assert apart.p_value < 1e-6


def test_inspector_rejects_at_about_its_level_without_a_difference():
    p_values = []
    for seed in range(150):
        attributions, _, _, group, _ = draw(seed, n=200)
        found = explanation_disparity_auc(attributions, None, None, group, inspector=GaussianNB(), random_state=seed)
        p_values.append(found.p_value)
    assert abs(np.mean(np.array(p_values) <= 0.05) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 150)


def test_inspector_approaches_the_best_possible_area():
    rng = np.random.default_rng(8)
    group = rng.integers(0, 2, 6000)
    attributions = rng.normal(size=(6000, 1)) + group[:, None]
    best = roc_auc_score(group, attributions[:, 0])
    found = explanation_disparity_auc(attributions, None, None, group, inspector=LogisticRegression())
    assert found.value == pytest.approx(best, abs=0.02)


def test_work_of_the_inspector_is_bounded_and_said():
    attributions, _, _, group, _ = draw(9)
    found = explanation_disparity_auc(attributions, None, None, group, max_people=150)
    assert "150 of 400 people, drawn at random" in found.note


# --- all ---

ALL = (gpf_fae, ref, vef, explanation_disparity_auc)


def test_one_signature():
    common = ["attributions", "scores", "labels", "group", "X", "score_function", "names", "random_state"]
    for metric in (*ALL, procedural_metrics):
        assert list(inspect.signature(metric).parameters)[: len(common)] == common


def test_the_table_holds_each_metric_as_it_is_alone_and_is_plain_data():
    attributions, scores, labels, group, X = draw(10)
    arguments = (attributions, scores, labels, group)
    options = {"X": X, "score_function": linear, "names": ["a", "b"], "random_state": 3}
    rows = procedural_metrics(*arguments, **options)
    assert rows == [metric(*arguments, **options) for metric in ALL]
    assert rows == procedural_metrics(*arguments, **options)
    assert json.loads(json.dumps([row.to_dict() for row in rows]))[0]["name"] == "gpf_fae"
    assert all(row.groups == ("a", "b") for row in rows)


def test_a_metric_that_lacks_an_input_is_nan_with_the_reason():
    attributions, _, _, group, _ = draw(11)
    rows = {row.name: row for row in procedural_metrics(attributions, None, None, group)}
    assert rows["gpf_fae"].note == "not estimable: needs `X`"
    assert rows["ref"].note == "not estimable: needs `scores` and `X` and `score_function`"
    assert rows["vef"].note.startswith("not estimable: needs `labels`")
    assert np.isnan([rows[name].value for name in ("gpf_fae", "ref", "vef")]).all()
    assert not np.isnan(rows["explanation_disparity_auc"].value)


@pytest.mark.parametrize("metric", ALL)
def test_of_several_groups_the_least_alike_pair_is_reported(metric):
    attributions, scores, labels, group, X = draw(12, n=900, n_groups=3)
    moved = turned(attributions, group, code=2)
    found = metric(moved, scores, labels, group, X=X, score_function=linear, names=["a", "b", "c"])
    assert "the least alike of 3 pairs" in found.note
    if metric is not vef:
        assert "c" in found.groups
    if metric is gpf_fae:
        assert found.p_value == found.value == pytest.approx(3 / 1000)  # the smallest p-value there is, three times
    pairs = []
    if metric in (ref, vef):
        return
    for first, second in ((0, 1), (0, 2), (1, 2)):
        keep = np.isin(group, (first, second))
        codes = (group[keep] == second).astype(np.int64)
        pairs.append(metric(moved[keep], None, None, codes, X=X[keep]).value)
    worst = min(pairs) if metric is gpf_fae else max(pairs)
    assert found.value == pytest.approx(min(1, 3 * worst) if metric is gpf_fae else worst, abs=0.05)


@pytest.mark.parametrize("metric", ALL)
def test_swapping_the_two_groups_changes_no_conclusion(metric):
    attributions, scores, labels, group, X = draw(13)
    moved = attributions + 0.2 * group[:, None]
    before, after = (metric(moved, scores, labels, g, X=X, score_function=linear) for g in (group, 1 - group))
    assert before.value == pytest.approx(after.value, abs=1e-12 if metric in (ref, vef) else 0.1)


@pytest.mark.parametrize("metric", ALL)
def test_small_groups_are_named_and_too_few_groups_are_nan(metric):
    attributions, scores, labels, group, X = draw(14)
    options = {"X": X, "score_function": linear}
    tiny = group.copy()
    tiny[:4] = 2
    found = metric(attributions, scores, labels, tiny, names=["a", "b", "c"], **options)
    assert found.groups == ("a", "b")
    assert "not judged, fewer than 10 people: c" in found.note
    alone = metric(attributions, scores, labels, np.where(np.arange(400) < 4, 1, 0), **options)
    assert isinstance(alone, ProceduralMetric)
    assert np.isnan(alone.value)
    assert alone.p_value is None
    assert "fewer than two groups of 10 people" in alone.note


A, S, Y, G, X40 = draw(15, n=40)
MASK = {"X": X40, "score_function": linear}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gpf_fae(A[:, 0], S, Y, G, X=X40), r"`attributions` must have shape \(n, d\), got \(40,\)"),
        (lambda: gpf_fae(np.where(A > 1, np.nan, A), S, Y, G, X=X40), "`attributions` must be finite, got"),
        (lambda: gpf_fae(A, S, Y, G), "`gpf_fae` needs `X`"),
        (lambda: gpf_fae(A, S, Y, G, X=X40[:5]), r"`X` must have a row for each of 40 people, got shape \(5, 3\)"),
        (lambda: gpf_fae(A, S, Y, G, X=X40 * np.inf), "`X` must be finite"),
        (lambda: gpf_fae(A, S, Y, G, X=X40, n_people=15), "even number of at least 20, got 15"),
        (lambda: gpf_fae(A, S, Y, G, X=X40, n_permutations=9), "`n_permutations` must be at least 99, got 9"),
        (lambda: gpf_fae(A, S, Y, np.full((40, 2), 0.5), X=X40), "are not supported here"),
        (lambda: gpf_fae(A, S, Y, G.astype(str), X=X40), "`group` must hold integer codes from 0"),
        (lambda: gpf_fae(A, S, Y, G - 1, X=X40), "`group` must hold integer codes from 0"),
        (lambda: gpf_fae(A, S, Y, G, X=X40, names=["a"]), "`names` has 1 names for 2 group codes"),
        (lambda: ref(A, None, Y, G, **MASK), "`ref` needs `scores`"),
        (lambda: ref(A, S * 9, Y, G, **MASK), r"`scores` must be probabilities in \[0, 1\], got values from"),
        (lambda: ref(A, S[:3], Y, G, **MASK), r"`scores` must be one for each of 40 people, got shape \(3,\)"),
        (lambda: ref(A, S, Y, G, X=X40), "`ref` needs `score_function`"),
        (
            lambda: ref(A, S, Y, G, X=X40, score_function=lambda X: X @ WEIGHTS),
            "`score_function`'s scores must be prob",
        ),
        (lambda: ref(A, S, Y, G, X=X40[:, :2], score_function=linear), "column for each of 3 attributions, got 2"),
        (lambda: ref(A, S, Y, G, top_k=4, **MASK), "`top_k` must be from 1 to the 3 features, got 4"),
        (lambda: ref(A, S, Y, G, mask_value=[0, 0], **MASK), r"one for each of 3 features, got shape \(2,\)"),
        (lambda: ref(A, S, Y, G, top_share=1, **MASK), "`top_share` must be a number between 0 and 1, got 1"),
        (lambda: vef(A, S, None, G, **MASK), "`vef` needs `labels`"),
        (lambda: vef(A, S, Y + 1, G, **MASK), r"`labels` must be 0 or 1 for each of 40 people"),
        (lambda: explanation_disparity_auc(A, S, Y, G, max_people=10), "`max_people` must be at least 100, got 10"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


# --- of a model ---


@pytest.fixture(scope="module")
def biased():
    return eh.make_planted_bias(600, 1.0, random_state=0)


def test_the_metrics_of_a_model_are_in_one_table(biased):
    data = biased.dataset

    def scores(X):
        return torch.sigmoid(biased.model(torch.tensor(X, dtype=torch.float32))).numpy().astype(float)

    table = related_metrics(biased.model, data.X, data.y, data.group, scores)
    assert {"gpf_fae", "ref", "vef", "explanation_disparity_auc"} == set(table["name"])
    assert table["value"].notna().all()
    assert related_metrics(biased.model, data.X, data.y, data.group)["value"].isna().sum() == 2


def test_a_blind_model_and_random_groups_are_rejected_about_as_often_as_they_may():
    """Inputs have few values: from the means of the groups, every attribution would be of one group alone."""
    n_audits, rows = 40, []
    for seed in range(n_audits):
        planted = eh.make_planted_bias(200, 0.0, ties=1.0, random_state=seed)
        group = np.random.default_rng(seed).choice(["a", "b"], 200)
        table = related_metrics(planted.model, planted.dataset.X, planted.dataset.y, group)
        rows.append(table.set_index("name")["p_value"])
    p = pd.DataFrame(rows)
    most = stats.binom.ppf(0.999, n_audits, 0.05)
    assert (p["explanation_disparity_auc"] <= 0.05).sum() <= most
    assert (p["gpf_fae"] <= 0.05).sum() <= most
    assert p["explanation_disparity_auc"].astype(float).median() > 0.1


def test_weights_that_differ_by_group_are_found(biased):
    data = biased.dataset
    p = related_metrics(biased.model, data.X, data.y, data.group).set_index("name")["p_value"]
    assert p["explanation_disparity_auc"] < 0.001
    assert p["gpf_fae"] < 0.05
