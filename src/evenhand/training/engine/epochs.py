"""Runs epochs of (a part of) a stack: step by step on the CPU, one captured graph per step on CUDA."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from evenhand.training.engine.minibatches import BatchSource, Block, Gains, TermTotals, batch_of
from evenhand.training.engine.step import Stepper


class Engine:
    """Epochs of the members whose parameters the stepper holds.

    Parameters
    ----------
    stepper
        Runs the steps.
    source
        Makes the batches.
    """

    def __init__(self, stepper: Stepper, source: BatchSource) -> None:
        self._stepper, self._source = stepper, source
        self._replay: _Replay | None = None
        self._may_capture = stepper.parameters.is_cuda

    @torch.no_grad()
    def run_epoch(
        self, epoch: int, n_done: Tensor, is_training: Tensor, gains: Gains | None = None
    ) -> TermTotals | None:
        """Run every step of an epoch; return the sums for its history, None if no member moves."""
        blocks = self._source.epoch(epoch, n_done, is_training, gains)
        parts = [block.totals(*self._run_block(block)) for block in blocks]
        if not parts:
            return None
        sums = {f.name: torch.stack([getattr(p, f.name) for p in parts]).sum(0) for f in fields(TermTotals)}
        return TermTotals(**sums)

    def _run_block(self, block: Block) -> tuple[Tensor, Tensor | None]:
        if self._may_capture and self._replay is None:
            self._capture(block)
        if self._replay is not None:
            return self._replay.run(block)
        logits, scores = zip(*(self._stepper.step(batch) for batch in block.batches()), strict=True)
        if block.pair_weight is None:
            return torch.stack(logits), None
        none = torch.zeros_like(block.pair_weight[0])  # of weight 0, as is all of a step without pairs
        return torch.stack(logits), torch.stack([none if score is None else score for score in scores])

    def _capture(self, block: Block) -> None:
        # If the driver or the allocator cannot capture graphs, steps run one by one.
        try:
            self._replay = _Replay(self._stepper, block)
        except RuntimeError:
            self._may_capture = False


class _Replay:
    """Steps captured as CUDA graphs, with and without the CEC term; a counter on the device chooses their batch."""

    def __init__(self, stepper: Stepper, block: Block) -> None:
        self._stepper = stepper
        self._inputs = {name: value.contiguous().clone() for name, value in block.fields.items()}
        self._index = torch.zeros(1, dtype=torch.int64, device=stepper.parameters.device)
        self._logits = torch.zeros_like(block.row_weight)
        self._scores = None if block.pair_weight is None else torch.zeros_like(block.pair_weight)
        state = (stepper.parameters, stepper.adam.mean, stepper.adam.square)
        before = [tensor.clone() for tensor in state]
        try:
            stream = torch.cuda.Stream(stepper.parameters.device)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for has_pairs in set(block.has_pairs):
                    for _ in range(2):  # libraries set themselves up on first use, which a capture may not contain
                        self._index.zero_()
                        self._step(has_pairs)
            torch.cuda.current_stream().wait_stream(stream)
            self._graphs = {has_pairs: self._capture(has_pairs) for has_pairs in set(block.has_pairs)}
        finally:
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)

    def run(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """Run the block's steps."""
        for name, value in block.fields.items():
            self._inputs[name][: block.n_steps].copy_(value)
        self._index.zero_()
        for has_pairs in block.has_pairs:
            self._graphs[has_pairs].replay()
        scores = None if self._scores is None else self._scores[: block.n_steps].clone()
        return self._logits[: block.n_steps].clone(), scores

    def _capture(self, has_pairs: bool) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._index.zero_()
        with torch.cuda.graph(graph):
            self._step(has_pairs)
        return graph

    def _step(self, has_pairs: bool) -> None:
        chosen = {name: value.index_select(0, self._index).squeeze(0) for name, value in self._inputs.items()}
        logits, scores = self._stepper.step(batch_of(chosen, has_pairs))
        self._logits.index_copy_(0, self._index, logits.unsqueeze(0))
        if self._scores is not None and scores is not None:
            self._scores.index_copy_(0, self._index, scores.unsqueeze(0))
        self._index.add_(1)
