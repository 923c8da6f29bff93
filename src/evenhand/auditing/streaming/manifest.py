"""A description of a streamed audit, so that it is resumed only if nothing has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from evenhand._version import __version__
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.streaming.store import Store
from evenhand.exceptions import InvalidInputError
from evenhand.models.protocol import AuditedModel

__all__ = ["check_resumable", "is_begun", "model_probe"]

_NAME = "manifest.json"
_FORM = "evenhand.stream/3"
_PROBE_PEOPLE = 64
_SAME = 1e-4  # scores of the same model agree better than this on any machine


def model_probe(model: AuditedModel, reference: AuditReference) -> dict[str, Any]:
    """A description of a model and its scores of a few people, to recognize a different model."""
    n = len(reference.pool)
    rows = torch.as_tensor(np.linspace(0, n - 1, min(n, _PROBE_PEOPLE)).astype(np.int64), device=model.device)
    with torch.no_grad():
        scores = model.margin(reference.pool.x[rows]).double().cpu().numpy()
    return {"kind": model.kind, "scores": scores.tolist()}


def is_begun(store: Store) -> bool:
    """Whether a folder holds an audit."""
    return store.read_json(_NAME) is not None


def check_resumable(
    store: Store,
    *,
    resume: bool,
    source: str,
    reference: str,
    model: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> None:
    """Write the manifest of a new audit, or compare it with that of the audit to resume.

    Raises
    ------
    InvalidInputError
        If the folder holds an audit and `resume` is False, or holds a different audit.
    """
    now = json.loads(
        json.dumps(
            {
                "form": _FORM,
                "evenhand": __version__,
                "source": source,
                "reference": reference,
                "model": dict(model),
                "settings": dict(settings),
            }
        )
    )
    before = store.read_json(_NAME)
    if before is None:
        store.write_json(_NAME, now)
        return
    if not resume:
        raise InvalidInputError(
            f"`out` already holds an audit, {str(store.folder)!r}; pass `resume=True` (--resume) to continue it, or "
            "choose a different folder."
        )
    changed = _changes(before, now)
    if changed:
        raise InvalidInputError(
            f"The audit in {str(store.folder)!r} cannot be resumed because {'; '.join(changed)}. Start again in "
            "a different folder, or restore what it was started with."
        )


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, in words."""
    found = []
    if before.get("form") != now["form"] or before.get("evenhand") != now["evenhand"]:
        found.append(f"it was started with evenhand {before.get('evenhand')} and this is {now['evenhand']}")
    if before.get("source") != now["source"]:
        found.append("the source has changed")
    is_same_reference = before.get("reference") == now["reference"]
    # The scores of different people say nothing about the model.
    if is_same_reference and not _is_same_model(before.get("model", {}), now["model"]):
        found.append("the model has changed")
    old, new = before.get("settings", {}), now["settings"]
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    found += [f"{name} was {old.get(name)!r} and is {new.get(name)!r}" for name in names]
    if not found and not is_same_reference:
        found.append("the reference has changed")
    return found


def _is_same_model(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    first, second = before.get("scores", []), now["scores"]
    if before.get("kind") != now["kind"] or len(first) != len(second):
        return False
    return bool(np.allclose(first, second, rtol=_SAME, atol=_SAME))
