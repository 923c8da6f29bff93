"""What the name of a column suggests: the one table of patterns for names."""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_HOLDERS = "account|acct|applicant|application|app|borrower|case|client|customer|cust|loan|member|person|record|user"
_SETTLED = "is set by the decision or after it"
_BAD_DECISION = (
    r"den(y|ies|ied|ials?)|reject(s|ed|ion)?|declin(e|es|ed)|refus(e|es|ed|al)|turned_down|adverse(_action)?"
)
_GOOD_DECISION = r"approv(e|es|ed|al)|accept(s|ed|ance)?|grant(s|ed)?|originat(ed|ion)|funded"
_BAD_REPAYMENT = (
    r"default(s|ed|er|ing)?|delinq[a-z]*|dlq[a-z]*|bad|charged?(_?offs?)?|chargeoffs?|writ(e|ten)_?offs?|writeoffs?|late|"
    r"fraud[a-z]*|loss|overdue|past_due|arrears|bankrupt[a-z]*|foreclos[a-z]*|repossess[a-z]*|insolven[a-z]*|npl|unpaid"
)
_GOOD_REPAYMENT = r"(re)?paid(_off)?|good|performing|solvent|creditworthy"

_PATTERNS = {
    "id": rf"ids?|uid|uuid|guid|identifier|ssn|iban|(number|no|nr|num|nummer|ref|reference|key|serial)$|"
    rf"^({_HOLDERS})(id|no|nr|num|number)?$",
    "person": r"^ids?$|ssn|^(applicant|borrower|client|customer|cust|household|member|person|user)$|"
    rf"({_HOLDERS}|household)_?(id|no|nr|num|number|key|ref)$",
    "date": "dates?|datetime|dt|dob|datum|timestamp|birthday|birthdate",
    "place": r"zip(_?code)?|zipcode|zip_?\d|postal(_code)?|post_?code|plz|fips(_code)?|^census_tract$|county_code",
    "label": "label|target|outcome",
    "weak label": "class|risk|income|y",
    "bad outcome": f"{_BAD_DECISION}|{_BAD_REPAYMENT}|risk",
    "good outcome": f"{_GOOD_DECISION}|{_GOOD_REPAYMENT}|risk",  # a risk of 1 may be a good or a bad one
    "repayment": f"{_BAD_REPAYMENT}|{_GOOD_REPAYMENT}",
    "decision": f"{_BAD_DECISION}|{_GOOD_DECISION}|decision|action_taken",
    "decision code": "^(action_taken|loan_status|decision|final_status|status)$",
    "history": "prior|previous|prev|history|hist|ever|existing|before|records?|rec|last|recent",
    "not": "no|non|not|never",
    "financial": "income|salary|wage|amount|amt|debt|dti|ltv|loan|balance|bal|score|fico|limit|pay|payment|"
    "instal{1,2}ment|"
    "duration|term|maturity|savings|assets|value|credit|utilization|capital|bill|revenue|collateral",
    "not financial": "tract|msa|count|type|code|existing|penalty|intro|purpose",
    "may be after": "interest_rate|int_rate|apr|preapproval|fees?|points|funded|disbursed|approval",
    "second person": "co|observed|tract",
    # An age, but of a thing.
    "thing": "accounts?|acct|loans?|mortgage|credit|cars?|vehicle|property|house|housing|home|building|company|"
    "business|employer|device|phone|collateral|policy|relationship|cards?|trades?|tradelines?|lines?|inquir(y|ies)|"
    "debt|balance|tract|units|file|oldest|newest|bureau|job|employment",
}  # fmt: skip

_AFTER = {
    r"(denial|decline|declined|rejection|adverse_action)_(reason|code)s?": "is given only for denials",
    "rate_spread|hoepa_status|purchaser_type": _SETTLED,
    "origination_charges|discount_points|lender_credits|total_loan_costs|total_points_and_fees": _SETTLED,
    "initially_payable_to_institution": _SETTLED,
    "action_taken|loan_status|decision|approved|den(y|ied)|rejected|final_status": "is or states the decision",
    r"charge_?off|charged_off|recover(y|ies)|collection_recovery_fee|write_?off": "is known once a loan fails",
    r"(last|total|next)_(pymnt|payment)|total_rec|out_prncp|settlement": "is known once a loan is paid",
}

PROTECTED = {
    r"race|racial|black|white|asian|hispanic|latin[oax]|(skin_)?colou?r": "race",
    "ethnic(ity)?|ethnicities": "ethnicity",
    "sex|gender|(fe)?male|wom[ae]n": "sex",
    r"nationalit(y|ies)|national_origin|citizen(ship)?|foreign(er)?|immigra[a-z]*|native_(country|language)|"
    r"(country|place)_of_birth|birth_?(country|place)|language": "national origin",
    "religion|religious": "religion",
    r"marital|marriage|married|spouse|divorced?|widow(ed|er)?|(family|personal|civil)_status|"
    r"^(is_)?single$": "marital status",
    "disab(ility|led)|handicap(ped)?": "disability",
    r"age|ages|aged|birth[a-z]*|dob|yob|born|elderly|senior_citizen": "age",
    "public_(assistance|aid|benefits?)|welfare|food_stamps?|medicaid": "public assistance",
}  # fmt: skip
"""Protected characteristics, in the order in which a group is proposed."""


def _whole_words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|_)(?:{pattern})(?:_|$)")


_MEANINGS = {meaning: _whole_words(pattern) for meaning, pattern in _PATTERNS.items()}
_REASONS = [(_whole_words(pattern), reason) for pattern, reason in _AFTER.items()]
_CHARACTERISTICS = [(_whole_words(pattern), name) for pattern, name in PROTECTED.items()]
_INDEX = re.compile(
    r"(Unnamed: \d+|level_\d+|index|rownames?|row|row[_ ]?(number|num|no|id)|obs|_c0|X|)", re.IGNORECASE
)


def plain(name: str) -> str:
    """The words of a name, in lower case.

    Examples
    --------
    >>> plain("MemberID"), plain("co-applicant_sex"), plain("BILL_AMT1")
    ('member_id', 'co_applicant_sex', 'bill_amt_1')
    """
    return "_".join(word.lower() for word in _WORD.findall(name))


def suggests(name: str, meaning: str) -> bool:
    """Whether words of a name have a meaning: a key of the table of patterns, such as "id" or "date".

    Examples
    --------
    >>> [suggests(name, "id") for name in ("SK_ID_CURR", "loan_number", "memberid", "paid", "number_of_loans")]
    [True, True, True, False, False]
    >>> suggests("DateOpened", "date"), suggests("update_count", "date")
    (True, False)
    """
    return _MEANINGS[meaning].search(plain(name)) is not None


def is_index_name(name: str) -> bool:
    """Whether the name is one that saved row numbers usually have.

    Examples
    --------
    >>> is_index_name("Unnamed: 0"), is_index_name("income")
    (True, False)
    """
    return _INDEX.fullmatch(name.strip()) is not None


def outcome_senses(name: str) -> set[bool]:
    """Whether a name or a value is that of a favorable outcome (True) or an unfavorable one: both, one or none.

    Examples
    --------
    >>> [outcome_senses(name) for name in ("deny", "SeriousDlqin2yrs", "charged_off", "repaid", "no_default", "target")]
    [{False}, {False}, {False}, {True}, {True}, set()]
    >>> outcome_senses("good_bad_flag") == {True, False}
    True
    """
    senses = {sense for sense, key in ((True, "good outcome"), (False, "bad outcome")) if suggests(name, key)}
    return {not sense for sense in senses} if suggests(name, "not") else senses


def names_a_bad_outcome(name: str) -> bool:
    """Whether the name of a label is that of an undesirable outcome, such as a default."""
    return outcome_senses(name) == {False}


def names_a_decision(name: str) -> bool:
    """Whether the name of a label is that of the lender's decision, and not of what happened after it.

    Examples
    --------
    >>> [names_a_decision(name) for name in ("deny", "action_taken", "default", "approved_and_repaid")]
    [True, True, False, False]
    """
    return suggests(name, "decision") and not suggests(name, "repayment")


def label_rank(name: str) -> int | None:
    """How likely a name is that of a label, 0 for the likeliest: what happened comes before what was decided."""
    if suggests(name, "history"):
        return None
    meanings = ("label", "repayment", "decision", "weak label")
    return next((rank for rank, meaning in enumerate(meanings) if suggests(name, meaning)), None)


def protected_characteristic(name: str) -> str | None:
    """The protected characteristic that a name suggests; None if it suggests none.

    Examples
    --------
    >>> [protected_characteristic(name) for name in ("derived_race", "MARRIAGE", "birth_year", "foreign_worker")]
    ['race', 'marital status', 'age', 'national origin']
    >>> [protected_characteristic(name) for name in ("usage", "trace", "mortgage_age", "AgeOfOldestAccount")]
    [None, None, None, None]
    """
    characteristic = next((one for pattern, one in _CHARACTERISTICS if pattern.search(plain(name))), None)
    return None if characteristic == "age" and suggests(name, "thing") else characteristic


def known_after(name: str) -> str | None:
    """Why a column of this name is unknown when a decision is made; None if the name does not suggest it.

    Examples
    --------
    >>> known_after("denial_reason-1")
    'is given only for denials'
    >>> known_after("income") is None
    True
    """
    return next((reason for pattern, reason in _REASONS if pattern.search(plain(name))), None)
