"""Audits that the report must be able to show."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import evenhand as eh

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    '"><img src=x onerror=alert(3)>',
    "{{7*7}}",
    "a\u2028b\u2029c & 'quoted'",
    "very_long_" * 60,
)


@pytest.fixture(scope="session")
def hostile(with_people):
    """Five groups and sixty features whose names, and some values, would like to be code; some values are missing."""
    rng = np.random.default_rng(5)
    n, d = 400, 60
    names = [*HOSTILE, *(f"feature_{j}" for j in range(d - len(HOSTILE)))]
    X = pd.DataFrame(rng.normal(size=(n, d)), columns=names)
    y = (X["feature_0"] + rng.normal(size=n) > 0).astype(int)
    group = np.asarray([*HOSTILE[:4], "plain"], dtype=object)[np.arange(n) % 5]
    torch.manual_seed(0)
    found = eh.audit(
        torch.nn.Linear(d, 1),
        X,
        y,
        sensitive_features=group,
        financial_features=[*HOSTILE[:3], "feature_0"],
        by=pd.Series(np.resize(HOSTILE[:3], n), name=HOSTILE[0]),
        regressions=True,
        outcomes={f"{HOSTILE[0]} price": rng.normal(size=n)},
    )
    table = found.table.astype({names[0]: object, "feature_1": object})
    table[names[0]] = np.resize(np.asarray(HOSTILE, dtype=object), n)
    table.loc[table.index % 7 == 0, "feature_1"] = None
    table.loc[table.index % 5 == 0, "feature_2"] = math.nan
    provenance = replace(found.provenance, model=HOSTILE[1], exclusions={HOSTILE[2]: 3})
    found = replace(found, provenance=provenance, warnings=(*found.warnings, *HOSTILE))
    return with_people(found, table=table, reference_table=table)
