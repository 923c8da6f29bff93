"""Batches of a stack, prepared for a block of steps at a time, so that steps only compute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.training.data import TrainingData
from evenhand.training.engine.step import Batch, adam_rates
from evenhand.training.losses import balanced_weights, bce_loss, cell_shares, equalized_odds_form, triples_in_turn
from evenhand.training.settings import TrainingSettings

# A block's size must not depend on the number of members: draws on CUDA are made block by block.
_ROWS_PER_BLOCK = 2048


@dataclass(frozen=True)
class Block:
    """S consecutive batches of all members.

    Attributes
    ----------
    fields
        Tensors of `Batch` with a leading dimension S.
    has_pairs
        For each step, whether the CEC term is part of it.
    row_weight, is_active, odds_form, pair_weight
        What `totals` needs: of shapes (S, K, m), (S, K), (S, K, C, C) and (S, K, M, q). Placebo pairs have negative
        weights.
    n_unmatched, n_left_out
        Counts for the history, of shape (K,).
    """

    fields: dict[str, Tensor]
    has_pairs: tuple[bool, ...]
    row_weight: Tensor
    is_active: Tensor
    odds_form: Tensor | None
    pair_weight: Tensor | None
    n_unmatched: Tensor
    n_left_out: Tensor

    def batches(self) -> Iterator[Batch]:
        """Views of one step after another."""
        by_name = {name: value.unbind(0) for name, value in self.fields.items()}
        for step in range(len(self.has_pairs)):
            yield {name: values[step] for name, values in by_name.items()}

    def totals(self, logits: Tensor, scores: Tensor | None) -> dict[str, Tensor]:
        """Sums for the history, of shape (K,), from logits (S, K, m) and squared scores (S, K, M, q) of the steps.

        NaN for a term that is not computed.
        """
        steps = self.is_active.to(logits.dtype)
        weight = self.row_weight.sum(-1) * steps
        odds = cec = pair_weight = torch.full_like(weight[0], torch.nan)
        if self.odds_form is not None:
            rates = torch.einsum("skm,skmc->skc", torch.sigmoid(logits), self.fields["cell_shares"])
            by_step = (torch.einsum("skcd,skd->skc", self.odds_form, rates) * rates).sum(-1)
            odds = (by_step * steps).sum(0)
        if scores is not None and self.pair_weight is not None:
            pair_weight = self.pair_weight.clamp_min(0).sum((0, 2, 3))
            cec = (scores * self.pair_weight).sum((0, 2, 3))
        return {
            "bce": (bce_loss(logits, self.fields["y"].squeeze(-1), self.row_weight) * weight).sum(0),
            "weight": weight.sum(0),
            "equalized_odds": odds,
            "n_left_out": self.n_left_out,
            "n_steps": steps.sum(0),
            "cec": cec,
            "pair_weight": pair_weight,
            "n_unmatched": self.n_unmatched,
        }


class BatchSource:
    """Draws the batches of each epoch for some members of a stack.

    A member's draws in an epoch depend only on its seed and the epoch's number. They are the same in any stack, and
    training can continue from any epoch without a saved generator.

    Parameters
    ----------
    data, stack
        What to train on, and how the whole stack is trained, which decides the terms that are computed.
    members
        The members that get batches.
    device
        Where to put the batches.
    """

    def __init__(self, data: TrainingData, stack: TrainingSettings, members: slice, device: torch.device) -> None:
        self._stack, self._device = stack, device
        self._settings = settings = stack.part(members)
        self._learning_rate = torch.tensor(settings.of_member("learning_rate"))
        self._n_groups = data.n_groups
        table_of = torch.tensor(settings.of_member("table"))
        self._n_rows = data.n_rows[table_of]
        baselines = data.baselines.flatten(1, 2).nan_to_num(0.0, 0.0, 0.0)
        # Baselines are the last rows of each table: one gather then fetches people, matches and baselines.
        self._stride = data.X.shape[1] + baselines.shape[1]
        self._inputs = torch.cat((data.X, baselines), dim=1).flatten(0, 1).to(device)
        self._rows_per_table, self._n_cells = data.X.shape[1], baselines.shape[1]
        self._y = data.y.flatten().to(device)
        self._group = data.group.flatten().to(device)
        self._weight = data.weights.flatten().to(device)
        self._match = data.match.flatten(0, 1).to(device)
        if stack.uses_placebo:
            assert data.triples is not None
            self._triples = data.triples.flatten(0, 1).to(device)
            self._n_triples = (self._triples[..., 0] >= 0).sum(-1)
            is_compared = data.triples[..., 0, 0] >= 0
            balanced = balanced_weights(data.y, data.group, data.weights, is_compared)
            self._triple_weight = balanced.flatten(0, 1).to(device)
        self._table = table_of.to(device)
        self._first_baselines = self._table * self._stride + self._rows_per_table
        names = ("cec_weight", "equalized_odds_weight")
        self._term_weights = torch.tensor([settings.of_member(name) for name in names], device=device)
        self._steps_per_epoch = -(-self._n_rows // settings.batch_size)
        # Members with the same seed and the same number of people draw the same numbers, which are drawn once.
        draws = list(zip(settings.of_member("seed"), self._n_rows.tolist(), strict=True))
        self._draws = list(dict.fromkeys(draws))
        place = {draw: index for index, draw in enumerate(self._draws)}
        self._draw_of = torch.tensor([place[draw] for draw in draws])
        self._generators = [torch.Generator(device) for _ in self._draws] if device.type == "cuda" else []

    def epoch(self, epoch: int, n_done: Tensor, is_training: Tensor, gains: Tensor | None = None) -> Iterator[Block]:
        """Blocks of one epoch.

        Parameters
        ----------
        epoch
            Its number, from 0.
        n_done
            Optimizer steps taken by each member before this epoch, of shape (K,), on the CPU.
        is_training
            Whether each member still moves, of shape (K,), on the CPU.
        gains
            Shares of their weights with which the CEC and the equalized-odds term count, of shape (2, K); None for all.
        """
        weights = self._term_weights if gains is None else self._term_weights * gains.to(self._term_weights)
        size = self._settings.batch_size
        n_steps = int(torch.where(is_training, self._steps_per_epoch, 0).max())
        is_drawn = torch.zeros(len(self._draws), dtype=torch.bool)
        is_drawn[self._draw_of[is_training]] = True
        generators = [np.random.Generator(np.random.SFC64([seed, epoch])) for seed, _ in self._draws]
        drawn = np.full((len(self._draws), n_steps, size), -1, dtype=np.int64)
        for index, generator in enumerate(generators):
            if is_drawn[index]:
                _fill_with_permutation(drawn[index], self._draws[index][1], generator)
        if self._generators:
            for ours, generator in zip(self._generators, generators, strict=True):
                ours.manual_seed(int(generator.integers(2**63)))
        is_active = (torch.arange(n_steps).unsqueeze(1) < self._steps_per_epoch) & is_training
        rates = adam_rates(n_done, is_active, self._learning_rate)
        order = torch.from_numpy(drawn)[self._draw_of].masked_fill_(~is_training.view(-1, 1, 1), -1)
        on_device = order.transpose(0, 1).to(self._device)
        n_drawn = is_drawn * -(-torch.tensor([n for _, n in self._draws]) // size)
        per_block = max(1, _ROWS_PER_BLOCK // size)
        for start in range(0, n_steps, per_block):
            part = slice(start, min(start + per_block, n_steps))
            fields = {
                "rates": rates[part].to(self._device),
                **self._kept_units(generators, n_drawn - start, len(is_active[part])),
            }
            has_pairs = tuple(self._stack.uses_cec and s % self._settings.cec_every == 0 for s in range(n_steps)[part])
            yield self._block(on_device[part], fields, is_active[part].to(self._device), has_pairs, epoch, weights)

    def _block(
        self,
        order: Tensor,
        fields: dict[str, Tensor],
        is_active: Tensor,
        has_pairs: tuple[bool, ...],
        epoch: int,
        weights: Tensor,
    ) -> Block:
        cec_weight, odds_weight = weights
        table = self._table.view(1, -1, 1)
        is_row = order >= 0
        row = order.clamp_min(0)
        flat = table * self._rows_per_table + row
        y, group = self._y[flat], self._group[flat]
        weight = self._weight[flat] * is_row
        person = table * self._stride + row
        fields["y"] = y.to(torch.float32).unsqueeze(-1)
        fields["weight"] = _normalized(weight, 1).unsqueeze(-1)
        fields["x"] = self._inputs[person]
        fields["ones"] = self._inputs.new_ones(()).expand(*order.shape[:2], 1, order.shape[2])
        odds_form = pair_weight = None
        n_left_out = n_unmatched = torch.full_like(is_active[0], torch.nan, dtype=torch.float32)
        if self._stack.uses_equalized_odds:
            shares, is_present = cell_shares(y, group, self._n_groups, weight)
            odds_form, left_out = equalized_odds_form(is_present)
            fields["cell_shares"] = shares
            fields["odds_form"] = shares @ odds_form * (2 * odds_weight.view(-1, 1, 1))
            n_left_out = (left_out * is_active).sum(0)
        if self._stack.uses_cec:
            is_used = torch.tensor(has_pairs, device=self._device).view(-1, 1, 1, 1)
            is_used = is_used & is_row.unsqueeze(-2)
            scale = self._settings.cec_every * cec_weight.view(-1, 1, 1) / 2
            if self._stack.uses_placebo:
                triples = triples_in_turn(self._triples[flat], self._n_triples[flat], row, epoch)  # (S, K, m, M, 2)
                partner = triples.movedim((-1, -2), (-3, -2)).flatten(-3, -2)  # matches, then placebos: (S, K, 2M, m)
                share = self._triple_weight[flat].transpose(-1, -2)
                n_unmatched = (is_used & (share == 0)).sum((0, 2, 3))
                pair_weight = weight.unsqueeze(-2) * is_used * share
                pair_weight = torch.cat((pair_weight, -pair_weight), dim=-2)
                # Divide by a number that is the same for every batch of a table, not by the number of rarer directions
                # that happen to be in the batch: the gradient stays unbiased.
                normalized = pair_weight / _never_zero(weight.sum(-1)).view(*weight.shape[:-1], 1, 1)
            else:
                partner = self._match[flat].transpose(-1, -2)  # (S, K, M, m)
                n_unmatched = (is_used & (partner < 0)).sum((0, 2, 3))
                pair_weight = weight.unsqueeze(-2) * (is_used & (partner >= 0))
                normalized = _normalized(pair_weight, 2)
            # An unmatched person, of weight 0, is compared with themselves.
            partner = torch.where(partner >= 0, partner, row.unsqueeze(-2)) + table.unsqueeze(-1) * self._stride
            fields |= self._pairs(person, partner, y * self._n_groups + group)
            fields["pair_weight"] = normalized * scale
        return Block(fields, has_pairs, weight, is_active, odds_form, pair_weight, n_unmatched, n_left_out)

    def _pairs(self, person: Tensor, partner: Tensor, cell: Tensor) -> dict[str, Tensor]:
        """People (S, K, q), their partners (S, K, M, q) and the baselines, with their weights and cells."""
        first, n_cells = self._first_baselines.view(1, -1, 1), self._n_cells
        ends = torch.cat((person, partner.flatten(-2)), dim=-1)
        baselines = (first + torch.arange(n_cells, device=self._device)).expand(len(ends), -1, -1)
        cells = cell.repeat(1, 1, 1 + partner.shape[2])
        rows = self._inputs[torch.cat((ends, baselines), dim=-1)]
        return {
            "rows": rows,
            "offset": rows[:, :, :-n_cells] - self._inputs[first + cells],
            "cell": torch.nn.functional.one_hot(cells, n_cells).to(torch.float32),
        }

    def _kept_units(self, generators: list[np.random.Generator], n_left: Tensor, n_steps: int) -> dict[str, Tensor]:
        """Dropout factors of shape (S, K, m, h) for each hidden layer, from draws that have `n_left` steps to go."""
        settings = self._settings
        if settings.dropout == 0:
            return {}
        n_used = n_left.clamp(0, n_steps).tolist()
        # Stored draw by draw, so that a member's draws do not depend on the other members.
        shapes = [(settings.batch_size, width) for width in settings.hidden]
        draw_of = self._draw_of.to(self._device)
        if self._generators:
            keep = [torch.ones(len(n_used), n_steps, *shape, device=self._device) for shape in shapes]
            for n, generator, own in zip(n_used, self._generators, zip(*keep, strict=True), strict=True):
                for layer in own:
                    layer[:n].bernoulli_(1 - settings.dropout, generator=generator).div_(1 - settings.dropout)
            keep = [layer[draw_of] for layer in keep]
        else:
            sizes = [math.prod(shape) for shape in shapes]
            drawn = torch.ones(len(n_used), n_steps, sum(sizes))
            for n, own_kept, drawing in zip(n_used, drawn, generators, strict=True):
                _draw_kept(own_kept[:n].numpy(), drawing, settings.dropout)
            kept = drawn if len(n_used) == self._settings.n_members else drawn[self._draw_of]
            keep = [layer.unflatten(-1, shape) for layer, shape in zip(kept.split(sizes, -1), shapes, strict=True)]
        return {f"keep{index}": layer.transpose(0, 1) for index, layer in enumerate(keep)}


def _fill_with_permutation(order: NDArray[np.int64], n_rows: int, generator: np.random.Generator) -> None:
    """Write a permutation of rows into batches (steps, m); a short last batch is padded at its *start*."""
    size = order.shape[1]
    flat = order.reshape(-1)
    rows = generator.permutation(n_rows)
    n_full = n_rows // size * size
    flat[:n_full] = rows[:n_full]
    if n_full < n_rows:
        end = n_full + size
        flat[end - (n_rows - n_full) : end] = rows[n_full:]


def _draw_kept(kept: NDArray[np.float32], generator: np.random.Generator, dropout: float) -> None:
    """Fill dropout factors of shape (S, units) from 16 random bits a unit, several times faster than from floats."""
    threshold = np.int16(min(round(dropout * 65536), 65535) - 32768)
    n_steps, n_units = kept.shape
    # With whole words for each step, the numbers do not depend on how an epoch is split into blocks.
    words = generator.integers(-(2**63), 2**63 - 1, endpoint=True, size=(n_steps, math.ceil(n_units / 4)))
    np.multiply(words.view(np.int16)[:, :n_units] >= threshold, np.float32(1 / (1 - dropout)), out=kept)


def _normalized(weight: Tensor, n_last: int) -> Tensor:
    """Weights that add up to 1 over the last dimensions, or stay all 0."""
    return weight / _never_zero(weight.sum(tuple(range(-n_last, 0)), keepdim=True))


def _never_zero(total: Tensor) -> Tensor:
    return total.masked_fill(total == 0, 1)
