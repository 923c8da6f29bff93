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


_OPTIONS = {
    option.name: option
    for kind in (AuditOptions, CommandOptions, GivenOptions, ColumnOptions, ReadOptions)
    for option in fields(kind)
}
_KINDS = {"bool": "flag", "tuple": "names", "float": "number"}
_CHOICES = {"favorable": ("", *get_args(Favorable)), "decimal": ("", *DECIMALS)}


@dataclass(frozen=True)
class Setting:
    """An option of an audit, other than the roles of columns, as a field of the form.

    Attributes
    ----------
    key
        Its name in audit.toml.
    kind
        How it is entered: as a text, number, choice, flag, or names separated by commas.
    title, note
        Its name on the page, and what it does.
    choices
        Values, for a choice.
    """

    key: str
    kind: str
    title: str
    note: str
    choices: Sequence[str]


def _settings(**titles: str) -> tuple[Setting, ...]:
    def setting(key: str, title: str) -> Setting:
        kind = next((kind for of, kind in _KINDS.items() if str(_OPTIONS[key].type).startswith(of)), "text")
        choices = _CHOICES.get(key, ())
        return Setting(key, "choice" if choices else kind, title, _OPTIONS[key].metadata["help"], choices)

    return tuple(setting(key, title) for key, title in titles.items())


DIRECTION = _settings(positive_label="Good value of the label", favorable="Good scores", decision_threshold="Cutoff")
"""What is good for an applicant."""

OUTPUT = _settings(
    title="Title",
    model_name="Name of the model",
    owner="Owner of the model",
    period="Period",
    memo="Word memo",
    pack="Evidence pack",
    quick="First look",
)

MORE = _settings(
    drop_missing="Leave out rows without a label or group",
    keep_group="The model sees the group",
    regressions="Regressions",
    stream="Read in batches",
    reference_group="Reference group",
    by="Segments",
    max_distance="Largest distance",
    columns="Inputs in the order of training",
    attributions="Columns of attributions",
    unit="Unit of the score",
)
"""What most audits leave as it is."""

READING = _settings(sheet="Sheet", encoding="Encoding", decimal="Decimal mark", missing="Words for a missing value")


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


def with_values(settings: Mapping[str, Any], fields: Sequence[Setting], form: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the values of a form; empty fields are left to their defaults.

    Raises
    ------
    InvalidInputError
        If a number is not one.

    Examples
    --------
    >>> with_values({"max_distance": 1.0}, MORE, {"by": "branch, product", "max_distance": "", "stream": "on"})
    {'stream': True, 'by': ['branch', 'product']}
    """
    found = {key: value for key, value in settings.items() if key not in {one.key for one in fields}}
    for one in fields:
        text = str(form.get(one.key, "")).strip()
        if isinstance(settings.get(one.key), Mapping):  # such as cutoffs by segment, which have no field
            found[one.key] = settings[one.key]
        if not text:
            continue
        if one.kind == "flag":
            found[one.key] = True
        elif one.kind == "names":
            found[one.key] = [name.strip() for name in text.split(",") if name.strip()]
        elif one.kind == "number":
            try:
                found[one.key] = float(text.replace(",", "."))
            except ValueError:
                raise InvalidInputError(f"{one.title} must be a number, got {text!r}.") from None
        else:
            found[one.key] = text
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


def shown_value(setting: Setting, settings: Mapping[str, Any]) -> str:
    """What a field of the form starts with.

    Examples
    --------
    >>> shown_value(MORE[5], {"by": ["branch", "product"]}), shown_value(MORE[3], {"stream": True})
    ('branch, product', 'on')
    """
    value = settings.get(setting.key, "")
    if isinstance(value, (bool, Mapping)):
        return "on" if value is True else ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _names(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else value or []
