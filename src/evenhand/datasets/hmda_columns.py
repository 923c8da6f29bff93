"""The columns of HMDA: which are inputs, and why the others are not.

Every column of a Data Browser export is accounted for below: it is an input (`HMDA_NUMBERS`,
`HMDA_CATEGORIES`), or it is left out with the reason (`HMDA_POST_DECISION`, `HMDA_PROTECTED`,
`HMDA_NOT_INPUTS`).
"""

from __future__ import annotations

__all__ = [
    "HMDA_CATEGORIES",
    "HMDA_FINANCIAL",
    "HMDA_NOT_INPUTS",
    "HMDA_NUMBERS",
    "HMDA_POST_DECISION",
    "HMDA_PROTECTED",
    "columns_of_inputs",
]

HMDA_FINANCIAL = (
    "loan_amount",
    "income",
    "debt_to_income_ratio",
    "property_value",
    "loan_to_value_ratio",
    "loan_term",
)
"""The paper's financial features; income is in thousands of dollars, the loan term in months."""

HMDA_NUMBERS = (
    *HMDA_FINANCIAL,
    "intro_rate_period",
    "prepayment_penalty_term",
    "tract_population",
    "ffiec_msa_md_median_family_income",
    "tract_to_msa_income_percentage",
    "tract_owner_occupied_units",
    "tract_one_to_four_family_homes",
    "tract_median_age_of_housing_units",
)
"""Numeric inputs. Product features are reported as applied for if no loan was made."""

HMDA_CATEGORIES = (
    "conforming_loan_limit",
    "loan_type",
    "loan_purpose",
    "lien_status",
    "reverse_mortgage",
    "open-end_line_of_credit",
    "business_or_commercial_purpose",
    "negative_amortization",
    "interest_only_payment",
    "balloon_payment",
    "other_nonamortizing_features",
    "construction_method",
    "occupancy_type",
    "manufactured_home_secured_property_type",
    "manufactured_home_land_property_interest",
    "total_units",
    "applicant_credit_score_type",
    "co-applicant_credit_score_type",
    "submission_of_application",
    "aus-1",
)
"""Categorical inputs, with the published codes as values (1111: the lender is exempt from reporting)."""

_ONLY_ORIGINATED = "reported only for originated loans, so a value reveals the decision"

HMDA_POST_DECISION = {
    "interest_rate": "set when the loan is approved; NA on a denial",
    "rate_spread": "computed from the approved rate; NA on a denial",
    "hoepa_status": _ONLY_ORIGINATED,
    "total_loan_costs": _ONLY_ORIGINATED,
    "total_points_and_fees": _ONLY_ORIGINATED,
    "origination_charges": _ONLY_ORIGINATED,
    "discount_points": _ONLY_ORIGINATED,
    "lender_credits": _ONLY_ORIGINATED,
    "purchaser_type": "who bought the loan after it was made; 0 on every denial",
    "denial_reason-1": "10 means not denied",
    "denial_reason-2": "given only for denials",
    "denial_reason-3": "given only for denials",
    "denial_reason-4": "given only for denials",
    "initially_payable_to_institution": "3, not applicable, is for applications that did not result in a loan",
    "preapproval": "a denied request has a separate action code, so the remaining ones were once approved",
}
"""Columns set by the decision or after it, each with how it reveals the decision."""

_POST_DECISION_NUMBERS = frozenset(
    {
        "interest_rate",
        "rate_spread",
        "total_loan_costs",
        "total_points_and_fees",
        "origination_charges",
        "discount_points",
        "lender_credits",
    }
)

_PERSONS = ("applicant", "co-applicant")
HMDA_PROTECTED = (
    "derived_ethnicity",
    "derived_race",
    "derived_sex",
    *(f"{who}_ethnicity-{i}" for who in _PERSONS for i in range(1, 6)),
    *(f"{who}_race-{i}" for who in _PERSONS for i in range(1, 6)),
    *(f"{who}_{basis}_observed" for who in _PERSONS for basis in ("ethnicity", "race", "sex")),
    *(f"{who}_{basis}" for who in _PERSONS for basis in ("sex", "age", "age_above_62")),
    "tract_minority_population_percent",
)
"""Columns that state race, ethnicity, sex or age, or the racial make-up of the tract.

All are prohibited bases under US law, age with exceptions, so none is an input unless asked for.
"""

_REPEAT = "an additional slot of aus-1, empty for most applications"
HMDA_NOT_INPUTS = {
    "action_taken": "the decision itself: the label",
    "activity_year": "the file it came from",
    "lei": "identifies the lender",
    "derived_msa-md": "identifies the place",
    "state_code": "identifies the place",
    "county_code": "identifies the place",
    "census_tract": "identifies the place",
    "derived_loan_product_type": "combines loan_type and lien_status",
    "derived_dwelling_category": "combines construction_method and total_units",
    "multifamily_affordable_units": "for buildings of five or more units, where applicants give no income",
    "aus-2": _REPEAT,
    "aus-3": _REPEAT,
    "aus-4": _REPEAT,
    "aus-5": _REPEAT,
}
"""Columns that are never inputs, each with the reason."""


def columns_of_inputs(include_post_decision: bool, include_protected: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Numeric and categorical columns of the inputs."""
    extra = [*HMDA_POST_DECISION] if include_post_decision else []
    extra += HMDA_PROTECTED if include_protected else ()
    numeric = _POST_DECISION_NUMBERS | {"tract_minority_population_percent"}
    numbers = (*HMDA_NUMBERS, *(column for column in extra if column in numeric))
    return numbers, (*HMDA_CATEGORIES, *(column for column in extra if column not in numeric))
