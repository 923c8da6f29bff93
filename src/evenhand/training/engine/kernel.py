r"""Blocks of training steps, compiled: cross-entropy, equalized odds, the CEC term at one segment, Adam.

At batches of 64, a step in torch spends more time on starting operations and on passes over memory than on arithmetic;
here a block of steps is one call. The formulas and symbols are those of `training.engine.step` and
`training.engine.consistency`, and tests compare the two. This code does two things that operations on whole tensors
cannot do:

- The people's first layer is computed once for prediction and for the CEC term: dropout comes after it.
- The last hidden layer, "top", is followed only where it switches. A unit of the same sign at both ends of a path has
  the slope that it has at the baseline, so :math:`g_L = \bar g_L + \Delta` with :math:`\bar g_L` common to a (label,
  group) cell and :math:`\Delta` 0 except for units that switch. Five of the six products with the weights below
  that layer are with arrays that are 0 elsewhere. Typically a tenth to a third of the units switch.

Nothing here checks its arguments; the caller manages threads. Constants have the arrays' type, because compiled code
would otherwise continue in float64. All compiled code is in one file because numba checks only that file to find out
whether its cache on disk is out of date.
"""

from __future__ import annotations

import numpy as np

from evenhand.metrics.cec import _EPSILON
from evenhand.system.libraries import Array, Scalar, compiled
from evenhand.training.engine.consistency import _TINY
from evenhand.training.engine.epochs import CARRIED, OF_SCALED, OF_VALUES, ON, SCALED, SLOPES, VALUES, Steps, Work


@compiled
def matrix(flat: Array, start: Scalar, n_rows: Scalar, n_columns: Scalar) -> Array:
    """A part of a flat array as a matrix."""
    return flat[start : start + n_rows * n_columns].reshape(n_rows, n_columns)


@compiled
def units_before(widths: Array, layer: Scalar) -> Scalar:
    """Hidden units of the layers before a hidden layer."""
    n = 0
    for i in range(layer):
        n += widths[i + 1]
    return n


@compiled
def weights_start(widths: Array, layer: Scalar) -> Scalar:
    """Where a layer's weights begin in a member's parameters; its biases follow."""
    n = 0
    for i in range(layer):
        n += (widths[i] + 1) * widths[i + 1]
    return n


@compiled
def rows_of(work: Work, kind: Scalar, widths: Array, layer: Scalar) -> Array:
    """One of the arrays of `Work.layers` in a hidden layer, of shape (R + C, h)."""
    n_rows = work.inputs.shape[1]
    return matrix(work.layers[kind], n_rows * units_before(widths, layer), n_rows, widths[layer + 1])


@compiled
def weights_of(parameters: Array, widths: Array, layer: Scalar) -> Array:
    """A layer's weights, or their gradient."""
    return matrix(parameters, weights_start(widths, layer), widths[layer], widths[layer + 1])


@compiled
def biases_of(parameters: Array, widths: Array, layer: Scalar) -> Array:
    """A layer's biases, or their gradient."""
    end = weights_start(widths, layer + 1)
    return parameters[end - widths[layer + 1] : end]


@compiled
def fill(values: Array, value: Scalar) -> None:
    """Set every element of a flat array."""
    for j in range(len(values)):
        values[j] = value


@compiled
def copy(values: Array, out: Array) -> None:
    """Copy a flat array."""
    for j in range(len(out)):
        out[j] = values[j]


@compiled
def add(values: Array, out: Array) -> None:
    """Add a flat array to another."""
    for j in range(len(out)):
        out[j] += values[j]


@compiled
def add_product(left: Array, right: Array, product: Array, out: Array) -> None:
    """Add left' right to `out`."""
    scratch = matrix(product, 0, left.shape[1], right.shape[1])
    np.dot(left.T, right, scratch)
    for i in range(len(out)):
        add(scratch[i], out[i])


@compiled
def multiply_affine(below: Array, widths: Array, layer: Scalar, parameters: Array, out: Array) -> None:
    """A layer's values before its activation."""
    np.dot(below, weights_of(parameters, widths, layer), out)
    for i in range(len(out)):
        add(biases_of(parameters, widths, layer), out[i])


@compiled
def gather(steps: Steps, step: Scalar, member: Scalar, has_pairs: bool, work: Work) -> None:
    """Inputs of people and, with pairs, of partners and baselines, and the rows' cells."""
    rows, n_people, n_partners = work.inputs[0], steps.person.shape[2], steps.partner.shape[2]
    for i in range(n_people):
        copy(steps.inputs[steps.person[step, member, i]], rows[i])
    if not has_pairs:
        return
    for i in range(n_people):
        work.cell[i] = steps.cell[step, member, i]
        for p in range(n_partners):
            row = (1 + p) * n_people + i
            copy(steps.inputs[steps.partner[step, member, p, i]], rows[row])
            work.cell[row] = work.cell[i]
    n_ends = len(work.cell)
    for row in range(n_ends, len(rows)):
        copy(steps.inputs[steps.baseline[member] + row - n_ends], rows[row])


@compiled
def find_slopes(values: Array, cell: Array, on: Array, slopes: Array) -> None:
    """Activations, slopes of the rows' paths, and of baselines whether each unit is on."""
    n_ends, zero, one = len(cell), values.dtype.type(0), values.dtype.type(1)
    for i in range(len(values)):
        start = values[n_ends + cell[i]] if i < n_ends else values[i]
        for j in range(values.shape[1]):
            u, v = values[i, j], start[j]
            # Both differences round the same way: a unit that stays on has a slope of exactly 1.
            slope = (max(u, zero) - max(v, zero)) / (u - v)
            on[i, j] = max(u, zero)
            slopes[i, j] = slope if u != v else zero
    for i in range(n_ends, len(values)):
        for j in range(values.shape[1]):
            slopes[i, j] = one if on[i, j] > zero else zero


@compiled
def find_switching(slopes: Array, out_weights: Array, work: Work) -> None:
    """The units of the top layer that switch on each path, and by how much; every unit of baselines, from 0."""
    n_ends, zero = len(work.cell), slopes.dtype.type(0)
    for i in range(len(slopes)):
        is_path, which, change, scaled = i < n_ends, work.switching[i], work.amounts[0, i], work.amounts[1, i]
        start = slopes[n_ends + work.cell[i]] if is_path else slopes[i]
        n = 0
        for k in range(len(start)):
            before = start[k]
            difference = slopes[i, k] - (before if is_path else zero)
            which[n], change[n], scaled[n] = k, difference, difference * out_weights[k]
            n += not is_path or difference != zero
        for extra in range(n, n + 3):  # units are taken four at a time
            which[extra], scaled[extra] = 0, zero
        work.n_switching[i] = n


@compiled
def add_units(units: Array, which: Array, amounts: Array, n: Scalar, row: Array) -> None:
    """Add n rows of `units`, by `amounts`, to `row`."""
    for a in range(0, n, 4):
        first, second, third, fourth = units[which[a]], units[which[a + 1]], units[which[a + 2]], units[which[a + 3]]
        p, q, r, s = amounts[a], amounts[a + 1], amounts[a + 2], amounts[a + 3]
        for j in range(len(row)):
            row[j] += p * first[j] + q * second[j] + r * third[j] + s * fourth[j]


@compiled
def dot_units(units: Array, which: Array, row: Array, n: Scalar, out: Array) -> None:
    """Products of `row` with n rows of `units`."""
    for a in range(0, n, 4):
        first, second, third, fourth = units[which[a]], units[which[a + 1]], units[which[a + 2]], units[which[a + 3]]
        p = q = r = s = row.dtype.type(0)
        for j in range(len(row)):
            p += row[j] * first[j]
            q += row[j] * second[j]
            r += row[j] * third[j]
            s += row[j] * fourth[j]
        out[a], out[a + 1], out[a + 2], out[a + 3] = p, q, r, s


@compiled
def find_attributions(widths: Array, parameters: Array, work: Work) -> None:
    """Values and slopes of all layers at the ends of all paths, carried back to the inputs."""
    rows, attributions = work.inputs[0], work.inputs[1]
    n_ends, last = len(work.cell), len(widths) - 3
    below = rows
    for layer in range(last + 1):
        values, on = rows_of(work, VALUES, widths, layer), rows_of(work, ON, widths, layer)
        multiply_affine(below, widths, layer, parameters, values)
        find_slopes(values, work.cell, on, rows_of(work, SLOPES, widths, layer))
        below = on
    weight, top = weights_of(parameters, widths, last), work.top[0]
    for k in range(len(top)):
        for j in range(len(weight)):
            top[k, j] = weight[j, k]
    find_switching(rows_of(work, SLOPES, widths, last), parameters[weights_start(widths, last + 1) :], work)
    carried = rows_of(work, CARRIED, widths, last - 1) if last > 0 else attributions
    for i in range(len(rows) - 1, -1, -1):  # baselines are last, and needed first
        fill(carried[i], 0)
        if i < n_ends:
            copy(carried[n_ends + work.cell[i]], carried[i])
        add_units(top, work.switching[i], work.amounts[1, i], work.n_switching[i], carried[i])
    for layer in range(last - 1, -1, -1):
        slopes, scaled = rows_of(work, SLOPES, widths, layer), rows_of(work, SCALED, widths, layer)
        carried = rows_of(work, CARRIED, widths, layer)
        for i in range(n_ends):
            for j in range(slopes.shape[1]):
                scaled[i, j] = slopes[i, j] * carried[i, j]
        below = rows_of(work, CARRIED, widths, layer - 1) if layer > 0 else attributions
        np.dot(scaled[:n_ends], weights_of(parameters, widths, layer).T, below[:n_ends])
    multiply_by_offset(rows, work.cell, attributions)


@compiled
def multiply_by_offset(rows: Array, cell: Array, out: Array) -> None:
    """Multiply by each row's difference from its baseline."""
    for i in range(len(cell)):
        start = rows[len(cell) + cell[i]]
        for j in range(rows.shape[1]):
            out[i, j] *= rows[i, j] - start[j]


@compiled
def compare(pair_weight: Array, scores: Array, join: Array, work: Work) -> None:
    """Squared scores of the pairs, and the derivative in the path-averaged gradients."""
    units, upstream, of_gradients = work.features[0], work.features[1], work.inputs[2]
    n_ends, n_features, n_people = len(work.cell), units.shape[1], pair_weight.shape[1]
    kind = units.dtype.type
    zero, epsilon, shortest, quarter = kind(0), kind(_EPSILON), kind(1e-15), kind(0.25)
    if len(join):
        np.dot(work.inputs[1][:n_ends], join, units)
    for i in range(n_ends):
        if not len(join):
            copy(work.inputs[1, i], units[i])
        total = zero
        for j in range(n_features):
            total += units[i, j] * units[i, j]
        work.lengths[i] = max(np.sqrt(total), shortest)
        for j in range(n_features):
            units[i, j] /= work.lengths[i] + epsilon
    for i in range(n_people):
        fill(upstream[i], zero)
        for p in range(len(pair_weight)):
            row, total = (1 + p) * n_people + i, zero
            for j in range(n_features):
                difference = units[i, j] - units[row, j]
                total += difference * difference
                upstream[row, j] = -difference * pair_weight[p, i]
                upstream[i, j] += difference * pair_weight[p, i]
            scores[p, i] = total * quarter
    for i in range(n_ends):
        along = zero
        for j in range(n_features):
            along += upstream[i, j] * units[i, j]
        along /= work.lengths[i]
        for j in range(n_features):
            upstream[i, j] = upstream[i, j] / (work.lengths[i] + epsilon) - units[i, j] * along
        if not len(join):
            copy(upstream[i], of_gradients[i])
    if len(join):
        np.dot(upstream, join.T, of_gradients[:n_ends])
    multiply_by_offset(work.inputs[0], work.cell, of_gradients)


@compiled
def return_to_values(values: Array, slopes: Array, carried: Array, of: Array, of_values: Array, cell: Array) -> None:
    """From the derivative in g, `of`, to that in the values that made the slopes, and in e, which takes its place."""
    n_ends, one, tiny = len(cell), values.dtype.type(1), values.dtype.type(_TINY)
    for i in range(n_ends, len(values)):
        fill(of_values[i], 0)
    for i in range(n_ends):
        of_start = of_values[n_ends + cell[i]]
        for j in range(values.shape[1]):
            slope = slopes[i, j]
            switching = of[i, j] * carried[i, j] * slope * (one - slope)
            of_values[i, j] = switching / max(abs(values[i, j]), tiny)
            of_start[j] += switching
            of[i, j] *= slope
    for i in range(n_ends, len(values)):
        for j in range(values.shape[1]):
            of_values[i, j] /= max(abs(values[i, j]), tiny)


@compiled
def return_through_top(
    values: Array, slopes: Array, of_carried: Array, out_weights: Array, of_out: Array, of_bias: Array, work: Work
) -> None:
    """Through the top layer where it switches: derivatives in its values, gradients of its biases and of the output."""
    n_ends, one, tiny = len(work.cell), values.dtype.type(1), values.dtype.type(_TINY)
    for c in range(len(work.of_start)):
        fill(work.of_start[c], 0)
        fill(of_carried[n_ends + c], 0)
    for i in range(len(values)):
        is_path, which, n = i < n_ends, work.switching[i], work.n_switching[i]
        cell = work.cell[i] if is_path else i - n_ends
        of_start, of_scaled, of_value = work.of_start[cell], work.amounts[2, i], work.amounts[3, i]
        if is_path:
            add(of_carried[i], of_carried[n_ends + cell])
        dot_units(work.top[0], which, of_carried[i], n, of_scaled)
        for a in range(n):
            k = which[a]
            slope = slopes[i, k]
            of_out[k] += of_scaled[a] * work.amounts[0, i, a]
            switching = of_scaled[a] * out_weights[k] * slope * (one - slope) if is_path else of_start[k]
            if is_path:
                of_start[k] += switching
            of_value[a] = switching / max(abs(values[i, k]), tiny)
            of_bias[k] += of_value[a]
        fill(of_value[n : n + 3], 0)


@compiled
def return_below_top(on: Array, of_carried: Array, below: Array, gradient: Array, work: Work) -> None:
    """From the derivatives in the top layer's values to its weights' gradient, and to `below`, that in `on`."""
    top, of_top = work.top[0], work.top[1]
    for k in range(len(of_top)):
        fill(of_top[k], 0)
    for i in range(len(below)):
        of_row, on_row, which, n = of_carried[i], on[i], work.switching[i], work.n_switching[i]
        fill(below[i], 0)
        add_units(top, which, work.amounts[3, i], n, below[i])
        for a in range(n):
            scaled, of_value, of_unit = work.amounts[1, i, a], work.amounts[3, i, a], of_top[which[a]]
            for j in range(len(of_row)):
                of_unit[j] += scaled * of_row[j] + of_value * on_row[j]
    for j in range(len(gradient)):
        for k in range(len(of_top)):
            gradient[j, k] += of_top[k, j]


@compiled
def add_consistency_gradient(widths: Array, parameters: Array, n_people: Scalar, work: Work) -> None:
    """Forward through the products that carried slopes back, and back through the values that made the slopes."""
    n_ends, last, zero = len(work.cell), len(widths) - 3, parameters.dtype.type(0)
    of_carried, on = work.inputs[2], work.inputs[0]
    for layer in range(last):
        values, of_scaled = rows_of(work, VALUES, widths, layer), rows_of(work, OF_SCALED, widths, layer)
        scaled, gradient = rows_of(work, SCALED, widths, layer), weights_of(work.gradient, widths, layer)
        add_product(of_carried[:n_ends], scaled[:n_ends], work.product, gradient)
        np.dot(of_carried[:n_ends], weights_of(parameters, widths, layer), of_scaled[:n_ends])
        slopes, carried = rows_of(work, SLOPES, widths, layer), rows_of(work, CARRIED, widths, layer)
        return_to_values(values, slopes, carried, of_scaled, rows_of(work, OF_VALUES, widths, layer), work.cell)
        of_carried, on = of_scaled, rows_of(work, ON, widths, layer)
    values, slopes = rows_of(work, VALUES, widths, last), rows_of(work, SLOPES, widths, last)
    output, of_bias = weights_start(widths, last + 1), biases_of(work.gradient, widths, last)
    return_through_top(values, slopes, of_carried, parameters[output:], work.gradient[output:], of_bias, work)
    below = matrix(work.below, 0, len(on), widths[last])
    return_below_top(on, of_carried, below, weights_of(work.gradient, widths, last), work)
    for layer in range(last - 1, -1, -1):
        of_values, on = rows_of(work, OF_VALUES, widths, layer), rows_of(work, ON, widths, layer)
        below = matrix(work.below, 0, len(on), widths[layer + 1])
        for i in range(len(on)):
            for j in range(on.shape[1]):
                of_value = below[i, j]  # read in both cases: choosing between two numbers needs no branch
                of_values[i, j] += of_value if on[i, j] > zero else zero
        if layer == 0:  # what `add_prediction_gradient` left
            of_people = matrix(work.people[1], 0, n_people, widths[1])
            for i in range(n_people):
                add(of_people[i], of_values[i])
        lower = rows_of(work, ON, widths, layer - 1) if layer > 0 else work.inputs[0]
        add_gradient(lower, of_values, widths, layer, work)
        if layer > 0:
            weight = weights_of(parameters, widths, layer)
            np.dot(of_values, weight.T, matrix(work.below, 0, len(on), widths[layer]))


@compiled
def add_gradient(lower: Array, of_values: Array, widths: Array, layer: Scalar, work: Work) -> None:
    """Add to the gradients of a layer's weights and biases."""
    add_product(lower, of_values, work.product, weights_of(work.gradient, widths, layer))
    of_bias = biases_of(work.gradient, widths, layer)
    for i in range(len(of_values)):
        add(of_values[i], of_bias)


@compiled
def predict(widths: Array, parameters: Array, keep: Array, has_pairs: bool, logits: Array, work: Work) -> None:
    """Logits of a batch, with dropout."""
    n_people, last, zero = len(logits), len(widths) - 3, parameters.dtype.type(0)
    below = work.inputs[0][:n_people]
    for layer in range(last + 1):
        n_out, start = widths[layer + 1], n_people * units_before(widths, layer)
        hidden = matrix(work.people[0], start, n_people, n_out)
        values = work.people[0][start : start + n_people * n_out]
        if layer == 0 and has_pairs:
            copy(work.layers[VALUES], values)
        else:
            multiply_affine(below, widths, layer, parameters, hidden)
        for j in range(len(values)):
            values[j] = max(values[j], zero)
        for j in range(min(len(values), len(keep))):
            values[j] *= keep[start + j]
        below = hidden
    output, n_top = weights_start(widths, last + 1), widths[last + 1]
    for i in range(n_people):
        total = parameters[output + n_top]
        for j in range(n_top):
            total += below[i, j] * parameters[output + j]
        logits[i] = total


@compiled
def find_of_logits(steps: Steps, step: Scalar, member: Scalar, logits: Array, of_logits: Array) -> None:
    """Derivative of cross-entropy and equalized odds in the logits."""
    kind = logits.dtype.type
    zero, one = kind(0), kind(1)
    shares, form = steps.cell_shares[step, member], steps.odds_form[step, member]
    scores = np.empty_like(logits)
    for i in range(len(logits)):
        scores[i] = one / (one + np.exp(-logits[i]))
        of_logits[i] = (scores[i] - steps.y[step, member, i, 0]) * steps.weight[step, member, i, 0]
    for c in range(shares.shape[1]):
        rate = zero
        for i in range(len(logits)):
            rate += shares[i, c] * scores[i]
        for i in range(len(logits)):
            of_logits[i] += form[i, c] * rate * scores[i] * (one - scores[i])


@compiled
def add_prediction_gradient(
    widths: Array, parameters: Array, keep: Array, has_pairs: bool, of_logits: Array, work: Work
) -> None:
    """Gradients of cross-entropy and equalized odds; with pairs, `add_consistency_gradient` does the first layer's."""
    n_people, last, zero = len(of_logits), len(widths) - 3, parameters.dtype.type(0)
    output, n_top = weights_start(widths, last + 1), widths[last + 1]
    start = n_people * units_before(widths, last)
    hidden, of_hidden = matrix(work.people[0], start, n_people, n_top), matrix(work.people[1], start, n_people, n_top)
    of_out = work.gradient[output : output + n_top]
    for i in range(n_people):
        work.gradient[output + n_top] += of_logits[i]
        for j in range(n_top):
            of_out[j] += hidden[i, j] * of_logits[i]
            of_hidden[i, j] = of_logits[i] * parameters[output + j]
    for layer in range(last, -1, -1):
        n_in, n_out, start = widths[layer], widths[layer + 1], n_people * units_before(widths, layer)
        values, of_values = work.people[0, start:], work.people[1, start:]
        for j in range(n_people * n_out):
            of_value = of_values[j]
            of_values[j] = of_value if values[j] > zero else zero
        for j in range(min(n_people * n_out, len(keep))):
            of_values[j] *= keep[start + j]
        if layer == 0 and has_pairs and last > 0:
            return
        lower, of_hidden = work.inputs[0][:n_people], matrix(of_values, 0, n_people, n_out)
        if layer > 0:
            before = n_people * units_before(widths, layer - 1)
            lower = matrix(work.people[0], before, n_people, n_in)
            weight = weights_of(parameters, widths, layer)
            np.dot(of_hidden, weight.T, matrix(work.people[1], before, n_people, n_in))
        add_gradient(lower, of_hidden, widths, layer, work)


@compiled
def adam(parameters: Array, mean: Array, square: Array, gradient: Array, rates: Array) -> None:
    """Move the parameters: see `training.engine.optimizer`."""
    mean_weight, square_weight, size, epsilon = rates[0, 0], rates[1, 0], rates[2, 0], rates[3, 0]
    for j in range(len(parameters)):
        g = gradient[j]
        mean[j] += (g - mean[j]) * mean_weight
        square[j] += (g * g - square[j]) * square_weight
        parameters[j] += size * (mean[j] / (np.sqrt(square[j]) + epsilon))


@compiled
def take_steps(
    widths: Array, parameters: Array, mean: Array, square: Array, steps: Steps, work: Work, logits: Array, scores: Array
) -> None:
    """Run every step of every member; write logits (S, K, m) and squared CEC scores (S, K, M, m) before each."""
    n_steps, n_members, n_people = steps.person.shape
    of_logits = np.empty(n_people, parameters.dtype)
    for member in range(n_members):
        own = parameters[member]
        for step in range(n_steps):
            rates, keep, has_pairs = steps.rates[step, :, member], steps.kept[member, step], steps.has_pairs[step]
            if rates[2, 0] == 0:  # the member does not move
                continue
            fill(work.gradient, 0)
            gather(steps, step, member, has_pairs, work)
            if has_pairs:
                find_attributions(widths, own, work)
                compare(steps.pair_weight[step, member], scores[step, member], steps.join, work)
            predict(widths, own, keep, has_pairs, logits[step, member], work)
            find_of_logits(steps, step, member, logits[step, member], of_logits)
            add_prediction_gradient(widths, own, keep, has_pairs, of_logits, work)
            if has_pairs:
                add_consistency_gradient(widths, own, n_people, work)
            adam(own, mean[member], square[member], work.gradient, rates)
