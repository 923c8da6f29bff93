"""Compiled walks through a tree ensemble: its margin, and interventional Shapley values with one baseline row.

Nothing here checks its arguments; `models.trees.tree_shap` does. Threads are left to the caller (the functions hold no
lock while they run): numba's thread pools may not be entered twice at a time, and do not survive a fork.
"""

from __future__ import annotations

from typing import Any, cast

import numba
import numpy as np

from evenhand.models.trees.ensemble import THRESHOLD, THRESHOLD_BUT_ZERO_IS_MISSING, ZERO_REACH
from evenhand.system.libraries import Array, Function, Scalar, compiled_in_order

Records = Any  # an array of `NODE`

# The rows that satisfy everything a path has tested of one feature so far, as bits.
INPUT, CONTEXT, BASELINE = 1, 2, 4
EITHER = CONTEXT | BASELINE
EVERY_ROW = INPUT | EITHER

# Columns of what is kept of a split of rows: its feature, the rows that satisfied it before, the branch still to be
# walked (-1 for none) and the rows there.
FEATURE, BEFORE, OTHER, OTHER_ROWS = range(4)

# The place of a single bit, found by multiplying with a number in which all six-bit windows differ (Leiserson, Prokop &
# Randall, 1998).
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
BIT_PLACE = np.zeros(64, np.int64)
for _place in range(64):
    BIT_PLACE[((1 << _place) * int(DE_BRUIJN) % 2**64) >> 58] = _place


def inlined(function: Function) -> Function:
    """Mark `function` as a part of the compiled functions that call it."""
    return cast(Function, numba.njit(function, inline="always", error_model="numpy"))


@compiled_in_order
def bit_place(bit: Scalar) -> Scalar:
    """The place of the only bit of a word."""
    return BIT_PLACE[(bit * DE_BRUIJN) >> np.uint64(58)]


@compiled_in_order
def goes_left(nodes: Records, in_set: Array, node: Scalar, x: Scalar) -> Scalar:
    """Whether the value `x` takes the left branch of `node`."""
    here = nodes[node]
    if x != x:
        return here.missing_left != 0
    if here.rule == THRESHOLD:
        return x <= here.threshold
    if here.rule == THRESHOLD_BUT_ZERO_IS_MISSING:
        return here.missing_left != 0 if abs(x) <= ZERO_REACH else x <= here.threshold
    if x > -1.0 and x < here.set_size:
        return in_set[here.set_start + int(x)] != 0
    return here.other_left != 0


@compiled_in_order
def answers(nodes: Records, in_set: Array, node: Scalar, x: Array) -> Array:
    """Whether each value takes the left branch of `node`."""
    out = np.empty(x.shape[0], np.bool_)
    for i in range(x.shape[0]):
        out[i] = goes_left(nodes, in_set, node, x[i])
    return out


@inlined
def rows_to_the_left(
    nodes: Records, in_set: Array, node: Scalar, rows: Scalar, z: Scalar, w: Scalar, b: Scalar
) -> Scalar:
    """Those of `rows` whose values of the node's feature take its left branch."""
    found = 0
    if rows & INPUT and goes_left(nodes, in_set, node, z):
        found |= INPUT
    if rows & CONTEXT and goes_left(nodes, in_set, node, w):
        found |= CONTEXT
    if rows & BASELINE and goes_left(nodes, in_set, node, b):
        found |= BASELINE
    return found


@inlined
def alone(rows: Scalar, row: Scalar) -> Scalar:
    """1 if the given one of context and baseline, and not the other, satisfies what was tested of a feature."""
    return 1 if rows & EITHER == row else 0


@inlined
def share(rows: Scalar, either: Scalar, gain: Scalar, loss: Scalar) -> Scalar:
    """A feature's part of leaves that `rows` of it reach, from the three weightings of these leaves' values."""
    if rows == INPUT | CONTEXT:
        return gain
    if rows == BASELINE:
        return -loss
    if rows == EITHER:
        return -either
    return 0.0


@compiled_in_order
def add_margin(nodes: Records, in_set: Array, roots: Array, x: Array, out: Array) -> None:
    """Add to `out`, of shape (n,), the leaves that the rows of `x` reach."""
    for tree in range(roots.shape[0]):
        for i in range(x.shape[0]):
            node = roots[tree]
            while nodes[node].feature >= 0:
                if goes_left(nodes, in_set, node, x[i, nodes[node].feature]):
                    node = nodes[node].left
                else:
                    node = nodes[node].right
            out[i] += nodes[node].value


@compiled_in_order
def add_mixtures(
    nodes: Records,
    in_set: Array,
    roots: Array,
    of_input: Array,
    of_context: Array,
    x: tuple[Array, Array, Array],
    max_depth: Scalar,
    out: Array,
) -> None:
    """Add to `out`, of shape (n, m), the leaves that m mixtures of the rows of `x` reach.

    `x` holds inputs, contexts and baselines. Mixtures are bits: entry (k, j) of `of_input`, and of `of_context`, has
    those of the mixtures 64 k to 64 k + 63 that take feature j from there; the others take it from the baseline. All
    mixtures of a person go down a tree together, and separate only where the rows differ at a feature.
    """
    z, w, b = x
    n_words = of_input.shape[0]
    waiting_node = np.empty(max_depth + 1, np.int64)
    waiting = np.empty((max_depth + 1, n_words), np.uint64)
    here = np.empty(n_words, np.uint64)
    none = np.uint64(0)
    n_last = out.shape[1] - 64 * (n_words - 1)
    last = ~none if n_last == 64 else (np.uint64(1) << np.uint64(n_last)) - np.uint64(1)
    for tree in range(roots.shape[0]):
        for i in range(z.shape[0]):
            node, n_waiting = np.int64(roots[tree]), 0
            for k in range(n_words):
                here[k] = ~none
            here[n_words - 1] = last
            while True:
                f = np.int64(nodes[node].feature)
                while f >= 0:
                    left_b = goes_left(nodes, in_set, node, b[i, f])
                    left_w = goes_left(nodes, in_set, node, w[i, f])
                    left_z = goes_left(nodes, in_set, node, z[i, f])
                    is_any_left, is_any_right = left_b, not left_b
                    if left_b != left_w or left_b != left_z:
                        is_any_left, is_any_right = False, False
                        for k in range(n_words):
                            take_z, take_w = of_input[k, f], of_context[k, f]
                            left = ~(take_z | take_w) if left_b else none
                            left |= take_w if left_w else none
                            left |= take_z if left_z else none
                            waiting[n_waiting, k] = here[k] & ~left
                            is_any_left = is_any_left or here[k] & left != none
                            is_any_right = is_any_right or here[k] & ~left != none
                        if is_any_left and is_any_right:
                            for k in range(n_words):
                                here[k] ^= waiting[n_waiting, k]
                            waiting_node[n_waiting] = nodes[node].right
                            n_waiting += 1
                    node = np.int64(nodes[node].left if is_any_left else nodes[node].right)
                    f = np.int64(nodes[node].feature)
                value = nodes[node].value
                for k in range(n_words):
                    rest = here[k]
                    while rest != none:
                        lowest = rest & (~rest + np.uint64(1))
                        out[i, 64 * k + bit_place(lowest)] += value
                        rest ^= lowest
                if n_waiting == 0:
                    break
                n_waiting -= 1
                node = waiting_node[n_waiting]
                for k in range(n_words):
                    here[k] = waiting[n_waiting, k]


@compiled_in_order
def add_contributions(
    nodes: Records, in_set: Array, roots: Array, shares: Array, x: Array, b: Array, out: Array
) -> None:
    """Add to `out`, of shape (n, d), the Shapley values of the rows of `x`, each with a separate baseline row of `b`.

    A path is followed while `x` or `b` (feature by feature) satisfies it. If the two separate at a feature at which
    they have not separated before, both branches are walked: first that of `x`, below which the feature belongs to `x`
    alone, then that of `b`. A leaf below `n_x` features of `x` alone and `n_b` of `b` alone, of value v, gives each of
    the former v (n_x - 1)! n_b! / (n_x + n_b)! and each of the latter -v n_x! (n_b - 1)! / (n_x + n_b)!. The two sums
    over leaves are passed up, so that each separation adds to its feature once.
    """
    depth = shares.shape[1]
    owner = np.zeros(x.shape[1], np.uint8)
    parting_feature = np.empty(depth, np.int64)
    parting_other = np.empty(depth, np.int64)
    parting_gain = np.empty(depth, np.float64)
    parting_loss = np.empty(depth, np.float64)
    for tree in range(roots.shape[0]):
        for i in range(x.shape[0]):
            node = np.int64(roots[tree])
            n_partings, n_x, n_b = 0, 0, 0
            while True:
                f = np.int64(nodes[node].feature)
                while f >= 0:
                    if owner[f] == BASELINE:
                        left = goes_left(nodes, in_set, node, b[i, f])
                    else:
                        left = goes_left(nodes, in_set, node, x[i, f])
                        if owner[f] == 0 and left != goes_left(nodes, in_set, node, b[i, f]):
                            parting_feature[n_partings] = f
                            parting_other[n_partings] = nodes[node].right if left else nodes[node].left
                            n_partings += 1
                            owner[f] = INPUT
                            n_x += 1
                    node = np.int64(nodes[node].left if left else nodes[node].right)
                    f = np.int64(nodes[node].feature)
                value = nodes[node].value
                gain = value * shares[n_x, n_b]
                loss = value * shares[n_b, n_x]
                while n_partings:
                    f = parting_feature[n_partings - 1]
                    if owner[f] == INPUT:
                        out[i, f] += gain
                        parting_gain[n_partings - 1] = gain
                        parting_loss[n_partings - 1] = loss
                        owner[f] = BASELINE
                        n_x -= 1
                        n_b += 1
                        node = parting_other[n_partings - 1]
                        break
                    out[i, f] -= loss
                    gain += parting_gain[n_partings - 1]
                    loss += parting_loss[n_partings - 1]
                    owner[f] = 0
                    n_b -= 1
                    n_partings -= 1
                if n_partings == 0:
                    break


@compiled_in_order
def add_input_contributions(
    nodes: Records, in_set: Array, roots: Array, shares: Array, z: Array, w: Array, b: Array, out: Array
) -> None:
    """Add to `out`, of shape (n, d), the contributions of the inputs `z` in the context of `w`, from the baselines `b`.

    As in `add_contributions`, but three rows may separate at a feature, and twice. `rows[f]` are the rows that satisfy
    all the path has tested of f. A leaf matters to feature j only if every other feature is satisfied by the context or
    the baseline; so below a branch that one feature's input alone takes, only that feature can gain, and below two such
    branches none. The share of a leaf that j gets follows from `rows[j]` (`share`), which separations further down may
    narrow: each separation therefore adds the share by its narrower rows minus that by its wider ones.
    """
    rows, depth = np.full(z.shape[1], EVERY_ROW, np.int64), 2 * shares.shape[1]
    partings, sums = np.empty((depth, 4), np.int64), np.empty((depth, 4), np.float64)
    for tree in range(roots.shape[0]):
        for i in range(z.shape[0]):
            node, n, n_context, n_baseline, n_lone = np.int64(roots[tree]), 0, 0, 0, 0
            while True:
                f = np.int64(nodes[node].feature)
                while f >= 0:
                    before = rows[f]
                    to_left = rows_to_the_left(nodes, in_set, node, before, z[i, f], w[i, f], b[i, f])
                    to_right = before & ~to_left
                    left, right = np.int64(nodes[node].left), np.int64(nodes[node].right)
                    node = left if to_left else right
                    if to_left and to_right:
                        other = right
                        if n_lone and to_left == INPUT:
                            node, other, to_left, to_right = right, left, to_right, to_left
                        partings[n, FEATURE], partings[n, BEFORE], partings[n, OTHER_ROWS] = f, before, to_right
                        partings[n, OTHER] = -1 if n_lone and to_right == INPUT else other
                        sums[n, 0], sums[n, 1], sums[n, 2], sums[n, 3] = 0.0, 0.0, 0.0, 0.0
                        n += 1
                        rows[f] = to_left
                        n_context += alone(to_left, CONTEXT) - alone(before, CONTEXT)
                        n_baseline += alone(to_left, BASELINE) - alone(before, BASELINE)
                        n_lone += to_left == INPUT
                    f = np.int64(nodes[node].feature)
                either = nodes[node].value * shares[n_context + 1, n_baseline]
                gain = 0.0 if n_lone else nodes[node].value * shares[n_context, n_baseline]
                loss = 0.0 if n_lone else nodes[node].value * shares[n_baseline, n_context]
                either, lone_gain = (0.0, either) if n_lone else (either, 0.0)
                while n:
                    f, before = partings[n - 1, FEATURE], partings[n - 1, BEFORE]
                    after, other = rows[f], partings[n - 1, OTHER]
                    out[i, f] += share(after, either, gain, loss) - share(before, either, gain, loss)
                    if after == INPUT:
                        out[i, f] += lone_gain
                        lone_gain = 0.0
                    either += sums[n - 1, 0]
                    gain += sums[n - 1, 1]
                    loss += sums[n - 1, 2]
                    lone_gain += sums[n - 1, 3]
                    now = partings[n - 1, OTHER_ROWS] if other >= 0 else before
                    rows[f] = now
                    n_context += alone(now, CONTEXT) - alone(after, CONTEXT)
                    n_baseline += alone(now, BASELINE) - alone(after, BASELINE)
                    n_lone += (now == INPUT) - (after == INPUT)
                    if other >= 0:
                        node, partings[n - 1, OTHER] = other, -1
                        sums[n - 1, 0], sums[n - 1, 1], sums[n - 1, 2], sums[n - 1, 3] = either, gain, loss, lone_gain
                        break
                    n -= 1
                if n == 0:
                    break
