"""Metrics of a stack on held-out people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from evenhand.arrays import Floats
from evenhand.attribution.explanation import Attribution
from evenhand.attribution.feed_forward import FeedForward
from evenhand.metrics.cec import squared_cec
from evenhand.metrics.outcomes import auc
from evenhand.models.explaining import CellBaselines, Explainer
from evenhand.models.gradient import DifferentiableModel
from evenhand.training.data import TrainingData, ValidationData
from evenhand.training.losses import (
    balanced_weights,
    bce_loss,
    equalized_odds_loss,
    hinged_excess,
    squared_reasoning_gap,
)
from evenhand.training.network import Layout
from evenhand.training.settings import TrainingSettings

VALIDATION_METRICS = ("bce", "equalized_odds", "cec", "objective", "auc", "positive_rate")

# Largest number of hidden values in memory at once.
_CHUNK_VALUES = {"cpu": 8_000_000, "cuda": 500_000_000}

# People on whom the excess of a table is estimated at the start of an epoch.
_MOST_JUDGED = 4_096


@dataclass(frozen=True, eq=False)
class Judge:
    """Metrics of a stack while it is trained.

    Attributes
    ----------
    data, settings
        The people, and the members that learn from them.
    device
        Where the networks are.
    """

    data: TrainingData
    settings: TrainingSettings
    device: torch.device
    _whole: dict[int, _Compared] = field(default_factory=dict, init=False)  # tables of which everyone is used

    @torch.no_grad()
    def evaluate(self, parameters: Tensor, layout: Layout) -> dict[str, Floats]:
        """Each of `VALIDATION_METRICS` on each member's validation table, with dropout off; arrays of shape (K,).

        Attributions are computed as in training. ``objective`` is the member's weighted sum. ``cec``, the term of
        `cec_weight` for every objective, is computed if any member has a weight on it, else NaN.
        """
        held_out, settings = self.data.validation, self.settings
        assert held_out is not None
        metrics = {name: np.full(len(parameters), np.nan) for name in VALIDATION_METRICS}
        n_values = held_out.X.shape[1] * (self.data.match.shape[2] + 1) * settings.n_steps * max(layout.widths)
        for table in self._tables:
            for members, net in self._networks_of(table, parameters, layout, n_values):
                for name, values in self._evaluate_table(net, held_out, table).items():
                    metrics[name][members.numpy()] = values
        metrics["objective"] = metrics["bce"].copy()
        for term in ("equalized_odds", "cec"):
            weight, values = np.asarray(settings.of_member(f"{term}_weight")), metrics[term]
            if term == "cec" and settings.uses_placebo:
                values = hinged_excess(torch.from_numpy(values)).numpy()
            metrics["objective"] += np.where(weight > 0, weight * values, 0.0)
        return metrics

    @torch.no_grad()
    def excess(self, parameters: Tensor, layout: Layout, epoch: int) -> Tensor:
        """The excess of pairs over placebo pairs in each member's table, of shape (K,), in squared scores.

        It uses all triples of everyone, or of some thousand people drawn for an epoch, because the triples of one epoch
        alone are a noisy sample.
        """
        excess = torch.zeros(len(parameters), device=parameters.device)
        for table in self._tables:
            compared = self._compared(table, epoch)
            n_rows = compared.partner.shape[1] * (1 + len(compared.partner))  # explanations of people
            n_values = n_rows * max((self.settings.n_steps + 1) * max(layout.widths) // 4, self.data.n_columns)
            for members, net in self._networks_of(table, parameters, layout, n_values):
                excess[members] = compared.term(net, self.settings)
        return excess

    @property
    def _tables(self) -> list[int]:
        return sorted(set(self.settings.of_member("table")))

    def _compared(self, table: int, epoch: int) -> _Compared:
        n = int(self.data.n_rows[table])
        if table in self._whole:
            return self._whole[table]
        rows = torch.arange(n)
        if n > _MOST_JUDGED:
            rows = torch.from_numpy(np.random.default_rng([epoch, table]).choice(n, _MOST_JUDGED, replace=False))
        compared = self._compare(self.data, table, rows)
        if n <= _MOST_JUDGED:
            self._whole[table] = compared
        return compared

    def _networks_of(
        self, table: int, parameters: Tensor, layout: Layout, n_values: int
    ) -> Iterator[tuple[Tensor, FeedForward]]:
        """Members of a table and their networks, as many at once as memory allows with `n_values` each."""
        size = max(1, _CHUNK_VALUES.get(parameters.device.type, _CHUNK_VALUES["cpu"]) // n_values)
        for members in (torch.tensor(self.settings.table) == table).nonzero().flatten().split(size):
            yield members, layout.networks(parameters[members])

    def _evaluate_table(self, net: FeedForward, held_out: ValidationData, table: int) -> dict[str, Floats]:
        n_members = len(net.weights[0])
        x, y, group, weight = (
            t[table].to(self.device).expand(n_members, *t[table].shape)
            for t in (held_out.X, held_out.y, held_out.group, held_out.weights)
        )
        logits = net(x)
        score = torch.sigmoid(logits)
        metrics = {
            "bce": bce_loss(logits, y, weight),
            "equalized_odds": equalized_odds_loss(logits, y, group, self.data.n_groups, weight)[0],
            "positive_rate": ((score >= 0.5) * weight).sum(1) / weight.sum(1),
        }
        if self.settings.uses_cec:
            everyone = torch.arange(held_out.X.shape[1])
            metrics["cec"] = self._compare(held_out, table, everyone).term(net, self.settings)
        arrays = {name: value.double().cpu().numpy() for name, value in metrics.items()}
        y_one, weight_one = y[0].cpu().numpy(), weight[0].cpu().numpy()
        arrays["auc"] = np.array([auc(y_one, row, weight_one) for row in logits.double().cpu().numpy()])
        return arrays

    def _compare(self, people: TrainingData | ValidationData, table: int, rows: Tensor) -> _Compared:
        """Rows of a table of people with their matches, or with their triples: all in training, else the nearest."""
        data = self.data
        is_trained = people is data
        inputs = data.X[table] if is_trained else torch.cat((data.X[table], people.X[table]))
        person = rows if is_trained else rows + data.X.shape[1]
        cell = (people.y[table] * data.n_groups + people.group[table])[rows]
        weight = people.weights[table][rows]
        if self.settings.uses_placebo:
            assert people.triples is not None
            one = slice(table, table + 1)
            is_compared = people.triples[one, :, :, 0, 0] >= 0
            share = balanced_weights(people.y[one], people.group[one], people.weights[one], is_compared)[0, rows]
            triples = people.triples[table, rows, :, : None if is_trained else 1]  # (n, M, C, 2)
            is_there = triples[..., 0] >= 0
            each = (share * weight.unsqueeze(-1)).unsqueeze(-1) * is_there
            each = (each / is_there.sum(-1, keepdim=True).clamp_min(1)).flatten(1).t()
            partner = triples.flatten(1, 2).movedim(0, 1)  # (M * C, n, 2)
            partner, pair_weight = torch.cat((partner[..., 0], partner[..., 1])), torch.cat((each, -each))
        else:
            partner = people.match[table][rows].t()
            pair_weight = (partner >= 0) * weight
        baselines = data.baselines[table].flatten(0, 1).to(self.device)
        n = int(data.n_rows[table])
        sizes = (data.y[table, :n] * data.n_groups + data.group[table, :n]).bincount(minlength=len(baselines))
        known = CellBaselines(baselines, (sizes * baselines.isfinite().all(-1).cpu()).numpy())
        return _Compared(inputs, person, cell, partner, pair_weight, known, data.join)


@dataclass(frozen=True, eq=False)
class _Compared:
    """People who are compared with rows of a training table, and the cells whose means are their baselines.

    Attributes
    ----------
    inputs
        Rows of the table, and of people who are not in it.
    person, cell
        Row and (label, group) cell of each person, of shape (n,).
    partner, pair_weight
        Rows of the table or -1, and weights of the pairs, negative for placebos; of shape (M, n).
    baselines
        Those of the table.
    """

    inputs: Tensor
    person: Tensor
    cell: Tensor
    partner: Tensor
    pair_weight: Tensor
    baselines: CellBaselines
    join: Tensor | None

    def term(self, net: FeedForward, settings: TrainingSettings) -> Tensor:
        """Weighted mean of squared scores, of shape (K,)."""
        device, (n_partners, n) = net.weights[0].device, self.partner.shape
        explainer = Explainer(DifferentiableModel(net, "networks"), self.baselines, settings.n_steps, settings.method)
        # A cell that training never saw has no baseline, so its people are left out.
        pair_weight = (self.pair_weight * torch.from_numpy(explainer.has_baseline(self.cell.numpy()))).to(device)
        rows = torch.cat((self.person.unsqueeze(0), self.partner.clamp_min(0))).flatten().numpy()
        seen = explainer.see(self.inputs, rows, np.tile(self.cell.numpy(), n_partners + 1))
        place = seen.position.reshape(n_partners + 1, n)
        attribution = seen.attribution
        assert isinstance(attribution, Attribution)
        join = None if self.join is None else self.join.to(device)
        squares = _squares(attribution.offset[place].unsqueeze(0), attribution.gradients[:, place], settings, join)
        total = pair_weight.clamp_min(0).sum()
        return (squares * pair_weight).sum((1, 2)) / total.masked_fill(total == 0, 1)


def _squares(offset: Tensor, gradients: Tensor, settings: TrainingSettings, join: Tensor | None) -> Tensor:
    """Squared scores of each person's pairs, of shape (K, M, n), from rows of people followed by partners."""
    if settings.uses_reasoning:
        theirs = offset[:, 1:]
        if settings.uses_placebo:
            theirs = theirs[:, : theirs.shape[1] // 2].repeat(1, 2, 1, 1)
        return squared_reasoning_gap(offset[:, :1], gradients[:, :1], theirs, gradients[:, 1:], join)
    ig = offset * gradients if join is None else (offset * gradients) @ join
    return squared_cec(ig[:, :1], ig[:, 1:])
