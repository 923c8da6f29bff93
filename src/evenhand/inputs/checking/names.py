"""What the name of a column suggests."""

from __future__ import annotations

import re

__all__ = [
    "GROUP_WORDS",
    "is_index_name",
    "known_after",
    "may_be_known_after",
    "names_a_bad_outcome",
    "names_a_date",
    "names_a_group",
    "names_an_id",
    "words_of",
]

GROUP_WORDS = ("race", "ethnicity", "sex", "gender", "nationality", "religion", "marital", "disability")
"""Words of protected characteristics, in the order in which a group is proposed."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_INDEX = re.compile(
    r"(Unnamed: \d+|level_\d+|index|rownames?|row|row[_ ]?(number|num|no|id)|obs|_c0|X|)", re.IGNORECASE
)
_ID_WORDS = frozenset({"id", "ids", "uid", "uuid", "guid", "identifier", "ssn", "iban"})
_ID_ENDINGS = frozenset({"number", "no", "nr", "num", "nummer", "ref", "reference", "key", "serial"})
_ID_HOLDERS = "account|acct|applicant|application|app|borrower|case|client|customer|cust|loan|member|person|record|user"
_JOINED_ID = re.compile(rf"({_ID_HOLDERS})(id|no|nr|num|number)?", re.IGNORECASE)
_DATE_WORDS = frozenset({"date", "dates", "datetime", "dt", "dob", "datum", "timestamp", "birthday", "birthdate"})

_BAD_OUTCOMES = frozenset(
    {"arrears", "bad", "bankruptcy", "charged", "chargeoff", "declined", "default", "defaulted", "delinquency"}
    | {"delinquent", "denied", "fraud", "loss", "overdue", "refused", "rejected"}
)
_NOT = frozenset({"no", "non", "not", "never"})

_SETTLED = "is set by the decision or after it"
_AFTER = tuple(
    (re.compile(rf"(^|_){pattern}(_|$)"), reason)
    for pattern, reason in (
        (r"(denial|decline|declined|rejection|adverse_action)_(reason|code)s?", "is given only for denials"),
        (r"rate_spread|hoepa_status|purchaser_type", _SETTLED),
        (r"origination_charges|discount_points|lender_credits|total_loan_costs|total_points_and_fees", _SETTLED),
        (r"initially_payable_to_institution", _SETTLED),
        (r"action_taken|loan_status|decision|approved|is_approved|denied|final_status", "is or states the decision"),
        (r"charge_?off|charged_off|recover(y|ies)|collection_recovery_fee|write_?off", "is known once a loan fails"),
        (r"(last|total|next)_(pymnt|payment)|total_rec|out_prncp|settlement", "is known once a loan is paid"),
    )
)  # fmt: skip
_MAY_BE_AFTER = re.compile(r"(^|_)(interest_rate|int_rate|apr|preapproval|fees?|points|funded|disbursed|approval)(_|$)")


def words_of(name: str) -> tuple[str, ...]:
    """The words of a column's name.

    Examples
    --------
    >>> words_of("MemberID"), words_of("co-applicant_sex"), words_of("BILL_AMT1")
    (('member', 'id'), ('co', 'applicant', 'sex'), ('bill', 'amt', '1'))
    """
    return tuple(word.lower() for word in _WORD.findall(name))


def is_index_name(name: str) -> bool:
    """Whether the name is one that saved row numbers usually have.

    Examples
    --------
    >>> is_index_name("Unnamed: 0"), is_index_name("income")
    (True, False)
    """
    return _INDEX.fullmatch(name.strip()) is not None


def names_an_id(name: str) -> bool:
    """Whether the name is that of an identifier of a person, an account or a case.

    Examples
    --------
    >>> [names_an_id(name) for name in ("SK_ID_CURR", "loan_number", "memberid", "paid", "number_of_loans", "account")]
    [True, True, True, False, False, True]
    """
    words = words_of(name)
    if not words:
        return False
    return bool(_ID_WORDS & set(words)) or words[-1] in _ID_ENDINGS or _JOINED_ID.fullmatch(name.strip()) is not None


def names_a_bad_outcome(name: str) -> bool:
    """Whether the name of a label is that of an undesirable outcome, such as a default.

    Examples
    --------
    >>> [names_a_bad_outcome(name) for name in ("default", "SeriousDelinquency", "loan_repaid", "no_default")]
    [True, True, False, False]
    """
    words = set(words_of(name))
    return bool(_BAD_OUTCOMES & words) and not _NOT & words


def names_a_date(name: str) -> bool:
    """Whether the name is that of a date.

    Examples
    --------
    >>> names_a_date("DateOpened"), names_a_date("update_count")
    (True, False)
    """
    return bool(_DATE_WORDS & set(words_of(name)))


def names_a_group(name: str) -> bool:
    """Whether the name is that of a protected characteristic whose values are groups.

    Examples
    --------
    >>> names_a_group("derived_race"), names_a_group("trace")
    (True, False)
    """
    return bool(set(GROUP_WORDS) & set(words_of(name)))


def known_after(name: str) -> str | None:
    """Why a column of this name is unknown when a decision is made; None if the name does not suggest it.

    Examples
    --------
    >>> known_after("denial_reason-1")
    'is given only for denials'
    >>> known_after("income") is None
    True
    """
    plain = "_".join(words_of(name))
    return next((reason for pattern, reason in _AFTER if pattern.search(plain)), None)


def may_be_known_after(name: str) -> bool:
    """Whether a column of this name is often, but not always, set by the decision.

    Examples
    --------
    >>> may_be_known_after("interest_rate"), may_be_known_after("installment_rate")
    (True, False)
    """
    return _MAY_BE_AFTER.search("_".join(words_of(name))) is not None
