"""Compiled walks of many people with the same baseline at a time: people separate only where their codes differ.

As in `models.trees.kernel`, nothing is checked here and threads are left to the caller.

People go down a tree in groups, each person down every branch that a mixture of their rows takes. Three bits say which
rows satisfy everything that the path has tested of a feature: the input z, the context w and the baseline b. A leaf of
value v, satisfied by the context alone at n_w features and by the baseline alone at n_b, is reached from j by the share

    v n_w! n_b! / (n_w + n_b + 1)!, not counting j,

of the orders in which features can change from the baseline to the context. Feature j gets it if its input satisfies
the leaf, and loses it if its baseline does. A leaf that the input alone satisfies at one feature matters only to that
feature, and one that it alone satisfies at two features matters to none.
"""

from __future__ import annotations

import numpy as np

from evenhand.models.trees.kernel import BASELINE, CONTEXT, EITHER, INPUT, Records, inlined
from evenhand.system.libraries import Array, Scalar, compiled_in_order

FEATURE, ROWS, LAST, NODE = range(4)  # columns of the path of `add_steps`
NOW, BEFORE = 1, 2  # columns of that of `add_values_beside`, after the feature

# Pending visits: a node, the people who get there, the length of the path to its parent, and the feature
# tested there (-1 above a root) with the rows that satisfy everything tested of it.
VISIT = np.dtype([(name, np.int32) for name in ("node", "start", "end", "length", "feature", "rows")])


@compiled_in_order
def code_rows(cuts: Array, cut_start: Array, x: Array, codes: Array) -> None:
    """Write the codes of the rows of `x`, rounded as the library compares them, to the columns of `codes`."""
    for j in range(x.shape[1]):
        for i in range(x.shape[0]):
            value = x[i, j]
            if value != value:
                codes[j, i] = 0
                continue
            start, n = cut_start[j], cut_start[j + 1] - cut_start[j]
            while n > 0:
                half = n >> 1
                if cuts[start + half] < value:
                    start += half + 1
                    n -= half + 1
                else:
                    n = half
            codes[j, i] = 1 + start - cut_start[j]


@compiled_in_order
def distinct_rows(x: Array) -> tuple[Array, Array]:
    """First places of the distinct rows of words, of shape (n, d), and for each row the number of its distinct row."""
    n, d = x.shape
    size = 16
    while size < 2 * n:
        size *= 2
    table = np.full(size, -1, np.int64)
    first, number = np.empty(n, np.int64), np.empty(n, np.int64)
    n_found = 0
    for i in range(n):
        key = np.uint64(0)
        for j in range(d):
            key = (key ^ x[i, j]) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
        place = np.int64(key & np.uint64(size - 1))
        while True:
            known = table[place]
            if known < 0:
                table[place] = known = n_found
                first[known] = i
                n_found += 1
            is_same = True
            for j in range(d):
                is_same = is_same and x[i, j] == x[first[known], j]
            if is_same:
                number[i] = known
                break
            place = (place + 1) & (size - 1)
    return first[:n_found].copy(), number


@inlined
def goes_left(nodes: Records, answers: Array, node: Scalar, code: Scalar) -> Scalar:
    """Whether a code takes the left branch of `node`."""
    here = nodes[node]
    if here.answers < 0:
        return np.uint32(code - here.shift) <= here.bound
    return answers[here.answers + code]


@compiled_in_order
def runs_of_codes(
    nodes: Records, answers: Array, parent: Array, code_start: Array, first_code: Scalar
) -> tuple[Array, Array]:
    """Number of steps of each node, and the steps: codes of the parent's feature from which on they lead there or not.

    The latter are complements, ~code. The state at the first code is omitted: only differences matter.
    """
    sizes = np.zeros(nodes.shape[0], np.int64)
    steps, n_steps = np.empty(1024, np.int32), 0
    for k in range(nodes.shape[0]):
        if parent[k] < 0:
            continue
        feature = nodes[parent[k]].feature
        n_codes = code_start[feature + 1] - code_start[feature]
        if n_steps + n_codes > steps.shape[0]:
            longer = np.empty(2 * steps.shape[0] + n_codes, np.int32)
            longer[:n_steps] = steps[:n_steps]
            steps = longer
        was_open = False
        for code in range(first_code, n_codes):
            is_open, node = True, np.int64(k)
            while is_open and parent[node] >= 0:
                above = np.int64(parent[node])
                if nodes[above].feature == feature:
                    is_open = goes_left(nodes, answers, above, np.uint32(code)) == (nodes[above].left == node)
                node = above
            if code > first_code and is_open != was_open:
                place = code_start[feature] + code
                steps[n_steps] = place if is_open else ~place
                n_steps += 1
                sizes[k] += 1
            was_open = is_open
    return sizes, steps[:n_steps].copy()


@inlined
def part(
    nodes: Records, answers: Array, node: Scalar, codes: Array, feature: Scalar, who: Array, start: Scalar, end: Scalar
) -> Scalar:
    """Order the people `who[start:end]` so that those who go left come first; return where the others start."""
    middle, listed = start, np.int64(nodes[node].answers)
    if listed < 0:
        shift, bound = nodes[node].shift, nodes[node].bound
        for k in range(start, end):
            person = who[k]
            who[k] = who[middle]
            who[middle] = person
            middle += np.uint32(codes[feature, person] - shift) <= bound
    else:
        for k in range(start, end):
            person = who[k]
            who[k] = who[middle]
            who[middle] = person
            middle += answers[listed + codes[feature, person]]
    return middle


@inlined
def wait(
    waiting: Records, n: Scalar, node: Scalar, start: Scalar, end: Scalar, length: Scalar, feature: Scalar, rows: Scalar
) -> Scalar:
    """Append a visit; return the number of visits."""
    visit = waiting[n]
    visit.node, visit.start, visit.end = node, start, end
    visit.length, visit.feature, visit.rows = length, feature, rows
    return n + 1


@inlined
def add_all(out: Array, row: Scalar, who: Array, start: Scalar, end: Scalar, amount: Scalar) -> None:
    """Add `amount` to the columns `who[start:end]` of a row."""
    for k in range(start, end):
        out[row, who[k]] += amount


@compiled_in_order
def add_margin(
    nodes: Records, answers: Array, roots: Array, max_depth: Scalar, unit: Scalar, codes: Array, out: Array
) -> None:
    """Add to `out`, of shape (n,), the leaves that the people of `codes` reach, tree after tree."""
    n = codes.shape[1]
    who = np.arange(n).astype(np.int32)
    waiting: Records = np.empty(max_depth + 2, VISIT)
    for tree in range(roots.shape[0]):
        n_waiting = wait(waiting, 0, roots[tree], 0, n, 0, -1, 0)
        while n_waiting:
            n_waiting -= 1
            visit = waiting[n_waiting]
            node, start, end = np.int64(visit.node), np.int64(visit.start), np.int64(visit.end)
            while start < end and nodes[node].feature >= 0:
                middle = part(nodes, answers, node, codes, nodes[node].feature, who, start, end)
                n_waiting = wait(waiting, n_waiting, nodes[node].right, middle, end, 0, -1, 0)
                node, end = np.int64(nodes[node].left), middle
            value = nodes[node].value * unit
            for k in range(start, end):
                out[who[k]] += value


@compiled_in_order
def add_shapley_values(
    nodes: Records,
    answers: Array,
    roots: Array,
    max_depth: Scalar,
    shares: Array,
    codes: Array,
    base: Array,
    unit: Scalar,
    out: Array,
    margin: Array,
) -> None:
    """Add to `out`, of shape (d, n), the Shapley values in units of the people of `codes`, of the same shape.

    Also add to `margin`, of shape (n,), the leaves that they reach, as `add_margin` does.

    The path holds the features at which the people differ from the baseline, and which of the two satisfies it.
    """
    d, n = codes.shape
    who = np.arange(n).astype(np.int32)
    waiting: Records = np.empty(2 * max_depth + 3, VISIT)
    way, met, met_by = np.empty(max_depth + 1, np.int32), np.empty(max_depth + 1, np.int32), np.zeros(d, np.int32)
    for tree in range(roots.shape[0]):
        n_waiting, length, n_x, n_b = wait(waiting, 0, roots[tree], 0, n, 0, -1, 0), 0, 0, 0
        while n_waiting:
            n_waiting -= 1
            visit = waiting[n_waiting]
            node, start, end, feature = np.int64(visit.node), np.int64(visit.start), np.int64(visit.end), visit.feature
            while length > visit.length:
                length -= 1
                met_by[way[length]] = 0
                n_x -= met[length] == INPUT
                n_b -= met[length] == BASELINE
            if feature >= 0:
                way[length], met[length], met_by[feature] = feature, visit.rows, visit.rows
                n_x += visit.rows == INPUT
                n_b += visit.rows == BASELINE
                length += 1
            while start < end and nodes[node].feature >= 0:
                feature, left, right = nodes[node].feature, np.int64(nodes[node].left), np.int64(nodes[node].right)
                is_left = goes_left(nodes, answers, node, base[feature])
                if met_by[feature] == BASELINE:
                    node = left if is_left else right
                    continue
                middle = part(nodes, answers, node, codes, feature, who, start, end)
                if met_by[feature] == INPUT:
                    n_waiting = wait(waiting, n_waiting, right, middle, end, length, -1, 0)
                    node, end = left, middle
                elif is_left:
                    if middle < end:
                        n_waiting = wait(waiting, n_waiting, right, middle, end, length, feature, INPUT)
                        n_waiting = wait(waiting, n_waiting, left, middle, end, length, feature, BASELINE)
                    node, end = left, middle
                else:
                    if start < middle:
                        n_waiting = wait(waiting, n_waiting, left, start, middle, length, feature, INPUT)
                        n_waiting = wait(waiting, n_waiting, right, start, middle, length, feature, BASELINE)
                    node, start = right, middle
            value = nodes[node].value
            gain, loss = np.int64(value * shares[n_x, n_b]), np.int64(value * shares[n_b, n_x])
            for k in range(length if start < end else 0):
                add_all(out, way[k], who, start, end, gain if met[k] == INPUT else -loss)
            for k in range(start, end if n_b == 0 else start):
                margin[who[k]] += value * unit
        while length > 0:
            length -= 1
            met_by[way[length]] = 0


@inlined
def add_runs(
    out: Array, runs: tuple[Array, Array], node: Scalar, who: Array, start: Scalar, end: Scalar, amount: Scalar
) -> None:
    """Add `amount` for the codes that lead to `node`, as steps, to the columns `who[start:end]`."""
    run_start, steps = runs
    for r in range(run_start[node], run_start[node + 1]):
        code = np.int64(steps[r])
        add_all(out, code if code >= 0 else ~code, who, start, end, amount if code >= 0 else -amount)


@inlined
def add_leaf(
    out: Array,
    runs: tuple[Array, Array],
    way: Array,
    length: Scalar,
    last: Array,
    rows: Array,
    value: Scalar,
    shares: Array,
    n_w: Scalar,
    n_b: Scalar,
    who: Array,
    start: Scalar,
    end: Scalar,
) -> None:
    """Add the part of a leaf, satisfied by context or baseline at every feature, to each feature of the path."""
    either = np.int64(value * shares[n_w + 1, n_b])
    gain, loss = np.int64(value * shares[n_w, n_b]), np.int64(value * shares[n_b, n_w])
    for k in range(length):
        feature = way[k, FEATURE]
        if last[feature] == k:
            amount = either if rows[feature] == EITHER else gain if rows[feature] == CONTEXT else loss
            add_runs(out, runs, way[k, NODE], who, start, end, amount)


@compiled_in_order
def add_steps(
    nodes: Records,
    answers: Array,
    roots: Array,
    max_depth: Scalar,
    shares: Array,
    codes: Array,
    base: Array,
    asked: Array,
    runs: tuple[Array, Array],
    out: Array,
) -> None:
    """Add to `out`, of shape (n_codes, n), what inputs of each code contribute in the contexts `codes`, as steps.

    `asked` are the codes of the inputs, of shape (d,), if they are the same for everyone, and otherwise empty. The path
    has a line for each node: the node, the feature tested above it, the rows that had satisfied it, and the previous
    line about the same feature. `lone` is the feature that neither the context nor the baseline satisfies.
    """
    d, n = codes.shape
    who = np.arange(n).astype(np.int32)
    waiting: Records = np.empty(3 * max_depth + 4, VISIT)
    way = np.empty((max_depth + 1, 4), np.int64)
    rows, last = np.full(d, EITHER, np.int64), np.full(d, -1, np.int64)
    for tree in range(roots.shape[0]):
        n_waiting, length, n_w, n_b, lone = wait(waiting, 0, roots[tree], 0, n, 0, -1, 0), 0, 0, 0, np.int64(-1)
        while n_waiting:
            n_waiting -= 1
            visit = waiting[n_waiting]
            node, start, end = np.int64(visit.node), np.int64(visit.start), np.int64(visit.end)
            while length > visit.length:
                length -= 1
                feature, before = way[length, FEATURE], way[length, ROWS]
                n_w += (before == CONTEXT) - (rows[feature] == CONTEXT)
                n_b += (before == BASELINE) - (rows[feature] == BASELINE)
                lone = np.int64(-1) if before and not rows[feature] else lone
                rows[feature], last[feature] = before, way[length, LAST]
            if visit.feature >= 0:
                feature, now = np.int64(visit.feature), np.int64(visit.rows)
                way[length, NODE], way[length, FEATURE] = node, feature
                way[length, ROWS], way[length, LAST] = rows[feature], last[feature]
                n_w += (now == CONTEXT) - (rows[feature] == CONTEXT)
                n_b += (now == BASELINE) - (rows[feature] == BASELINE)
                lone = lone if now else feature
                rows[feature], last[feature] = now, length
                length += 1
            here, feature = nodes[node], np.int64(nodes[node].feature)
            if feature < 0:
                add_leaf(out, runs, way, length, last, rows, here.value, shares, n_w, n_b, who, start, end)
                continue
            met, is_base_left = rows[feature], goes_left(nodes, answers, node, base[feature])
            middle = part(nodes, answers, node, codes, feature, who, start, end) if met & CONTEXT else end
            for k in range(4):
                # First the people on the left, then those on the right; for each, the left branch, then the right one.
                is_left, are_left = k % 2 == 0, k < 2
                first, after = (start, middle) if are_left else (middle, end)
                now = met & ((CONTEXT if is_left == are_left else 0) | (BASELINE if is_left == is_base_left else 0))
                if first == after or (now == 0 and lone >= 0 and lone != feature):
                    continue
                if now == 0 and asked.shape[0] and goes_left(nodes, answers, node, asked[feature]) != is_left:
                    continue
                child = np.int64(here.left if is_left else here.right)
                if nodes[child].feature >= 0 or (now and lone < 0):
                    n_waiting = wait(waiting, n_waiting, child, first, after, length, feature, now)
                    continue
                u = n_w + (now == CONTEXT) - (met == CONTEXT)
                v = n_b + (now == BASELINE) - (met == BASELINE)
                amount = np.int64(nodes[child].value * shares[u + 1, v])
                add_runs(out, runs, way[last[lone], NODE] if now else child, who, first, after, amount)
        for k in range(length):
            rows[way[k, FEATURE]], last[way[k, FEATURE]] = EITHER, -1


@inlined
def only(rows: Scalar, row: Scalar) -> Scalar:
    """1 if the given one of context and baseline, and not the other, is among `rows`."""
    return 1 if rows & EITHER == row else 0


@inlined
def add_leaf_beside(
    own: Array,
    out: Array,
    way: Array,
    length: Scalar,
    rows: Array,
    value: Scalar,
    shares: Array,
    n_w: Scalar,
    n_b: Scalar,
    who: Array,
    start: Scalar,
    end: Scalar,
) -> None:
    """Add the part of a leaf, satisfied by context or baseline at every feature, to each feature of the path."""
    either = np.int64(value * shares[n_w + 1, n_b])
    gain, loss = np.int64(value * shares[n_w, n_b]), np.int64(value * shares[n_b, n_w])
    for k in range(length):
        feature, met = way[k, FEATURE], way[k, NOW]
        if rows[feature] != met:  # the path has narrowed them further
            continue
        sign = (met & INPUT != 0) - (met & BASELINE != 0)
        if sign:
            amount = either if met & EITHER == EITHER else gain if met & CONTEXT else loss
            add_all(out, feature, who, start, end, sign * amount)
        if met & EITHER != EITHER:
            add_all(own, feature, who, start, end, gain if met & CONTEXT else -loss)


@compiled_in_order
def add_values_beside(
    nodes: Records,
    answers: Array,
    roots: Array,
    max_depth: Scalar,
    shares: Array,
    codes: Array,
    base: Array,
    inputs: Array,
    is_moved: Array,
    own: Array,
    out: Array,
) -> None:
    """Add to `own` the Shapley values of the contexts `codes` of n people, and to `out` what `inputs` contribute there.

    All are of shape (d, n), in units. The amounts are those of `add_steps`, for the one row of inputs that each context
    is asked about: people take a branch that neither the context nor the baseline takes only if their input does. No
    input differs from the context in features that are not `is_moved`.

    The path has a line for each time that fewer rows satisfy what was tested of a feature: the feature, the rows that
    still do, and those that did before.
    """
    d, n = codes.shape
    who = np.arange(n).astype(np.int32)
    waiting: Records = np.empty(7 * max_depth + 9, VISIT)
    way = np.empty((max_depth + 1, 3), np.int64)
    ends = np.empty(5, np.int64)
    rows = np.full(d, EITHER | INPUT, np.int64)
    for tree in range(roots.shape[0]):
        n_waiting, length, n_w, n_b, lone = wait(waiting, 0, roots[tree], 0, n, 0, -1, 0), 0, 0, 0, np.int64(-1)
        while n_waiting:
            n_waiting -= 1
            visit = waiting[n_waiting]
            node, start, end = np.int64(visit.node), np.int64(visit.start), np.int64(visit.end)
            while length > visit.length:
                length -= 1
                feature, now, before = way[length, FEATURE], way[length, NOW], way[length, BEFORE]
                n_w += only(before, CONTEXT) - only(now, CONTEXT)
                n_b += only(before, BASELINE) - only(now, BASELINE)
                lone = np.int64(-1) if lone == feature and before & EITHER else lone
                rows[feature] = before
            if visit.feature >= 0:
                feature, now = np.int64(visit.feature), np.int64(visit.rows)
                before = rows[feature]
                way[length, FEATURE], way[length, NOW], way[length, BEFORE] = feature, now, before
                n_w += only(now, CONTEXT) - only(before, CONTEXT)
                n_b += only(now, BASELINE) - only(before, BASELINE)
                lone = lone if now & EITHER else feature
                rows[feature] = now
                length += 1
            here, feature = nodes[node], np.int64(nodes[node].feature)
            if feature < 0:  # a tree without splits
                continue
            # Once an input is alone, those of other features no longer matter.
            met = rows[feature] if lone < 0 or lone == feature else rows[feature] & EITHER
            base_left = BASELINE if goes_left(nodes, answers, node, base[feature]) else 0
            # People whose context goes left, then the others; in each half, those whose input goes left come first.
            ends[0], ends[4] = start, end
            ends[2] = part(nodes, answers, node, codes, feature, who, start, end) if met & CONTEXT else end
            ends[1], ends[3] = ends[2], ends[2] if met & CONTEXT else end
            if met & INPUT and (is_moved[feature] or not met & CONTEXT):
                ends[1] = part(nodes, answers, node, inputs, feature, who, start, ends[2])
                ends[3] = part(nodes, answers, node, inputs, feature, who, ends[2], end)
            for quarter in range(4):
                first, after = ends[quarter], ends[quarter + 1]
                if first == after:
                    continue
                to_left = (CONTEXT if quarter < 2 else 0) | (INPUT if quarter % 2 == 0 else 0) | base_left
                for side in range(2):
                    now = met & to_left if side == 0 else met & ~to_left
                    if now == 0:
                        continue
                    child = np.int64(here.left if side == 0 else here.right)
                    if nodes[child].feature >= 0:
                        changed = feature if now != met else -1
                        n_waiting = wait(waiting, n_waiting, child, first, after, length, changed, now)
                        continue
                    value = nodes[child].value
                    u = n_w + only(now, CONTEXT) - only(met, CONTEXT)
                    v = n_b + only(now, BASELINE) - only(met, BASELINE)
                    if lone >= 0 or now == INPUT:
                        amount = np.int64(value * shares[u + 1, v])
                        add_all(out, lone if lone >= 0 else feature, who, first, after, amount)
                        continue
                    way[length, FEATURE], way[length, NOW], rows[feature] = feature, now, now
                    add_leaf_beside(own, out, way, length + (now != met), rows, value, shares, u, v, who, first, after)
                    rows[feature] = met
        while length > 0:
            length -= 1
            rows[way[length, FEATURE]] = EITHER | INPUT


@compiled_in_order
def look_up(
    steps: Array, code_start: Array, base: Array, z_codes: Array, asked: Array, context: Array, unit: Scalar, out: Array
) -> None:
    """Write to `out`, of shape (n, d), what the columns `asked` of `z_codes` contribute in each `context`.

    `steps`, of shape (n_codes, n_contexts), becomes what each code contributes.
    """
    d = z_codes.shape[0]
    for j in range(d):
        for c in range(code_start[j] + 1, code_start[j + 1]):
            for i in range(steps.shape[1]):
                steps[c, i] += steps[c - 1, i]
    for k in range(asked.shape[0]):
        for j in range(d):
            first, i = code_start[j], context[k]
            out[k, j] = unit * np.float64(steps[first + z_codes[j, asked[k]], i] - steps[first + base[j], i])
