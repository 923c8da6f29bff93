"""The settings of an audit as fields of a form, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from evenhand.auditing.options import AuditOptions, CommandOptions, Favorable, GivenOptions
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.read_options import DECIMALS, ColumnOptions, ReadOptions

ROLES = {
    "": "input of the model",
    "label": "label: the true outcome",
    "group": "group: the protected attribute",
    "financial_features": "financial feature: matched on",
    "drop": "left out",
    "decisions": "decision that was made (1: approved)",
    "scores": "score, in place of a model",
    "reason_codes": "reason code",
    "ids": "id, shown in the report",
    "clusters": "id of an applicant with several rows",
    "sample_weight": "sampling weight",
}
"""What a column can be, and how it is called."""

_SEVERAL = ("group", "financial_features", "drop", "reason_codes")

OPTIONS = {
    option.name: option
    for kind in (AuditOptions, CommandOptions, GivenOptions, ColumnOptions, ReadOptions)
    for option in fields(kind)
}
"""All options that the form may show; their help is shown, too."""

CHOICES = {"favorable": ("", *get_args(Favorable)), "decimal": ("", *DECIMALS)}
"""Values of options that are a choice."""

_KINDS = {"bool": "flag", "tuple": "names", "float": "number"}

DIRECTION = {"positive_label": "Good value of the label", "favorable": "Good scores", "decision_threshold": "Cutoff"}
"""What is good for an applicant: options, and their names on the page."""

OUTPUT = {
    "title": "Title",
    "model_name": "Name of the model",
    "owner": "Owner of the model",
    "period": "Period",
    "memo": "Word memo",
    "pack": "Evidence pack",
    "quick": "First look",
}

MORE = {
    "drop_missing": "Leave out rows without a label or group",
    "keep_group": "The model sees the group",
    "regressions": "Regressions",
    "stream": "Read in batches",
    "reference_group": "Reference group",
    "by": "Segments",
    "max_distance": "Largest distance",
    "columns": "Inputs in the order of training",
    "attributions": "Columns of attributions",
    "unit": "Unit of the score",
}
"""What most audits leave as it is."""

READING = {"sheet": "Sheet", "encoding": "Encoding", "decimal": "Decimal mark", "missing": "Words for a missing value"}


def kind_of(key: str) -> str:
    """How an option is entered: as a text, number, choice, flag, or names separated by commas.

    Examples
    --------
    >>> [kind_of(key) for key in ("title", "decision_threshold", "favorable", "memo", "by")]
    ['text', 'number', 'choice', 'flag', 'names']
    """
    if key in CHOICES:
        return "choice"
    return next((kind for of, kind in _KINDS.items() if str(OPTIONS[key].type).startswith(of)), "text")


def role_of(column: str, settings: Mapping[str, Any]) -> str:
    """The role that the settings give a column.

    Examples
    --------
    >>> role_of("sex", {"label": "paid", "group": ["sex"]}), role_of("age", {})
    ('group', '')
    """
    return next((role for role in ROLES if role and column in _names(settings.get(role))), "")


def with_roles(settings: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """The settings with other roles of columns.

    Raises
    ------
    InvalidInputError
        If two columns have a role that only one can have.

    Examples
    --------
    >>> with_roles({"label": "old", "memo": True}, {"paid": "label", "sex": "group", "age": ""})
    {'label': 'paid', 'group': ['sex'], 'memo': True}
    """
    chosen = {role: [name for name, own in roles.items() if own == role] for role in ROLES if role}
    for role, names in chosen.items():
        if len(names) > 1 and role not in _SEVERAL:
            raise InvalidInputError(f"Only one column can be the {ROLES[role]}, got {', '.join(names)}.")
    found = {role: names if role in _SEVERAL else names[0] for role, names in chosen.items() if names}
    return found | {key: value for key, value in settings.items() if key not in ROLES}


def with_values(settings: Mapping[str, Any], titles: Mapping[str, str], form: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the values of a form, whose options have titles; empty fields are left to their defaults.

    Raises
    ------
    InvalidInputError
        If a number is not one.

    Examples
    --------
    >>> with_values({"max_distance": 1.0}, MORE, {"by": "branch, product", "max_distance": "", "stream": "on"})
    {'stream': True, 'by': ['branch', 'product']}
    """
    found = {key: value for key, value in settings.items() if key not in titles}
    for key, title in titles.items():
        text, kind = str(form.get(key, "")).strip(), kind_of(key)
        if isinstance(settings.get(key), Mapping):  # such as cutoffs by segment, which have no field
            found[key] = settings[key]
        if not text:
            continue
        if kind == "number":
            try:
                found[key] = float(text.replace(",", "."))
            except ValueError:
                raise InvalidInputError(f"{title} must be a number, got {text!r}.") from None
        elif kind == "names":
            found[key] = [name.strip() for name in text.split(",") if name.strip()]
        else:
            found[key] = True if kind == "flag" else text
    return found


@dataclass(frozen=True)
class Repair:
    """A line of the table [clean]: spellings of a group, a value that means missing, or bands of a number."""

    key: Literal["groups", "missing", "bands"]
    name: str
    value: Any = None

    def __str__(self) -> str:
        if self.key == "groups":
            return f"Read {self.name!r} as {self.value!r}"
        if self.key == "bands":
            return f"Cut {self.name} into bands at {', '.join(f'{cut:g}' for cut in self.value)}"
        column, _, word = self.name.rpartition("=")
        return f"Read {word!r}{f' in {column}' if column else ''} as missing"

    @staticmethod
    def all_in(clean: Mapping[str, Any]) -> list[Repair]:
        """The repairs of a table [clean].

        Examples
        --------
        >>> clean = {"groups": {"female ": "Female"}, "missing": ["income=-999"], "bands": {"age": [25, 62]}}
        >>> [str(repair) for repair in Repair.all_in(clean)]
        ["Read 'female ' as 'Female'", "Read '-999' in income as missing", 'Cut age into bands at 25, 62']
        """
        spelled, cut = clean.get("groups") or {}, clean.get("bands") or {}
        return [
            *(Repair("groups", name, value) for name, value in spelled.items()),
            *(Repair("missing", str(name)) for name in clean.get("missing") or ()),
            *(Repair("bands", name, tuple(value)) for name, value in cut.items()),
        ]


def with_repairs(settings: Mapping[str, Any], repairs: Sequence[Repair]) -> dict[str, Any]:
    """The settings with other repairs; bands of a column that is neither the group nor a segment are left out.

    Examples
    --------
    >>> with_repairs({"group": ["sex"]}, [Repair("groups", "f", "F"), Repair("bands", "age", (25,))])
    {'group': ['sex'], 'clean': {'groups': {'f': 'F'}}}
    """
    cut = [*settings.get("group", []), *settings.get("by", [])]
    used = [one for one in repairs if one.key != "bands" or one.name in cut]
    missing = [*settings.get("missing", []), *(one.name for one in used if one.key == "missing")]
    tables = {key: {one.name: one.value for one in used if one.key == key} for key in ("groups", "bands")}
    clean = {key: value for key, value in {**tables, "missing": list(dict.fromkeys(missing))}.items() if value}
    kept = {key: value for key, value in settings.items() if key not in ("clean", "missing")}
    return {**kept, **({"clean": clean} if clean else {})}


def shown_value(key: str, settings: Mapping[str, Any]) -> str:
    """What a field of the form starts with.

    Examples
    --------
    >>> shown_value("by", {"by": ["branch", "product"]}), shown_value("stream", {"stream": True})
    ('branch, product', 'on')
    """
    value = settings.get(key, "")
    if isinstance(value, (bool, Mapping)):
        return "on" if value is True else ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _names(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else value or []
