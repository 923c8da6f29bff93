"""Valid files made invalid: bytes turned, cut, moved and mixed, and what the format means altered within its form."""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["Rng", "alter_tree", "altered_bytes", "archived", "damaged", "unzipped"]

Rng = np.random.Generator

_NUMBERS = [
    *(
        "0",
        "-1",
        "-2",
        "1",
        "2147483647",
        "-2147483648",
        "4294967295",
        "9223372036854775807",
        "1e308",
        "-1e308",
        "1e400",
    ),
    *("5e-324", "nan", "inf", "-inf", "1e20", "99999999999999999999", "0.5", "", "x", "007", "1_0", "0x1F", "٣"),
]
_VALUES: list[Any] = [
    *(0, -1, -2, 1, 2**31 - 1, -(2**31), 2**32, 2**63, 10**30, 10**400),
    *(1e308, -1e308, 5e-324, 0.5, float("nan"), float("inf")),
    *(None, True, False, "", "0", "-1", "nan", "x" * 5_000, "\x1b[2J", "\u202e", "\0", "../../etc/passwd"),
    *([], {}, [[]], [0], {"": 0}, "1e999", "2147483648", ["a", 1, None], {"a": {"b": []}}),
]
_DEEP = 100_000  # levels
_RECKLESS = ["os.system", "builtins.eval", "builtins.exec", "subprocess.Popen", "posix.system", "operator.methodcaller"]


def damaged(name: str, content: bytes, others: Sequence[bytes], rng: Rng, canary: str) -> bytes:
    """A file of the kind of `name` with a few things wrong; sometimes a hostile one that would leave a canary."""
    if rng.random() < 0.25:
        return altered_bytes(content, others, rng)
    altered = content
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        altered = _FORMS[name.rpartition(".")[2]](altered, rng, canary)
    return altered


def altered_bytes(content: bytes, others: Sequence[bytes], rng: Rng) -> bytes:
    """The bytes turned, cut, repeated, moved and mixed."""
    altered = bytearray(content)
    for _ in range(int(rng.choice([1, 1, 2]))):
        if not altered:
            return b""
        place, length = int(rng.integers(len(altered))), int(rng.choice([1, 2, 4, 8, 70]))
        how = rng.integers(9)
        if how == 0:
            del altered[place:]
        elif how == 1:
            for at in rng.integers(len(altered), size=rng.choice([1, 1, 1, 2, 8])):
                altered[at] ^= 1 << int(rng.integers(8))
        elif how == 2:
            altered[place : place + length] = rng.bytes(length)
        elif how == 3:
            altered[place:place] = rng.bytes(length)
        elif how == 4:
            del altered[place : place + length]
        elif how == 5:
            altered[place:place] = altered[place : place + length] * int(rng.integers(1, 200))
        elif how == 6:
            other = others[int(rng.integers(len(others)))]
            start = int(rng.integers(len(other)))
            altered[place : place + length] = other[start : start + int(rng.integers(1, 2_000))]
        elif how == 7:
            extreme = rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63])
            form = str(rng.choice(["<Q", ">Q"])) if extreme > 2**32 - 1 else str(rng.choice(["<I", ">I", "<Q", ">Q"]))
            packed = struct.pack(form, int(extreme))
            altered[place : place + len(packed)] = packed
        else:
            altered[place : place + length] = bytes(length)
    return bytes(altered)


def _number(content: bytes, rng: Rng) -> bytes:
    """One written number is something else."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e[-+]?\d+)?", content))
    if not found:
        return content
    which = found[int(rng.integers(len(found)))]
    return content[: which.start()] + str(rng.choice(_NUMBERS)).encode() + content[which.end() :]


# -- JSON


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every holder of a value with the key of it."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        keys = part.keys() if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        for key in keys:
            found.append((part, key))
            waiting.append(part[key])
    return found


def alter_tree(value: Any, rng: Rng) -> None:
    """Alter one value of plain data where it lies."""
    places = _places(value, [])
    if not places:
        return
    holder, key = places[int(rng.integers(len(places)))]
    old = holder[key]
    how = rng.integers(7)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(old, (int, float)) and not isinstance(old, bool):
        holder[key] = type(old)(rng.choice([-old, old + 1, old - 1, old * 2]))
    elif how == 2 and isinstance(old, list) and old:
        rng.shuffle(old) if rng.random() < 0.5 else old.extend(old[:9] * int(rng.integers(1, 50)))
    elif how == 3:
        other, at = places[int(rng.integers(len(places)))]
        holder[key] = json.loads(
            json.dumps(other[at] if at in other or (isinstance(other, list) and at < len(other)) else 0)
        )
    elif how == 4 and isinstance(old, str):
        holder[key] = str(rng.choice(_NUMBERS))
    elif how == 5 and isinstance(holder, dict):
        holder[str(rng.choice(["", "x", "schema", "__class__", str(key) + " "]))] = holder.pop(key)
    else:
        holder[key] = _VALUES[int(rng.integers(len(_VALUES)))]


def _json(content: bytes, rng: Rng, _: str) -> bytes:
    if rng.random() < 0.03:
        opening, closing = (b"[", b"]") if rng.random() < 0.5 else (b'{"a":', b"}")
        deep = opening * _DEEP + b"0" + closing * _DEEP
        return content.replace(b"0", deep, 1) if rng.random() < 0.5 else deep
    if rng.random() < 0.1:
        return _number(content, rng)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return _number(content, rng)
    alter_tree(value, rng)
    return json.dumps(value).encode()


# -- text


def _lines(content: bytes, rng: Rng, _: str) -> bytes:
    """LightGBM's lines of names and numbers."""
    if rng.random() < 0.6:
        return _number(content, rng)
    lines = content.split(b"\n")
    at, other = (int(place) for place in rng.integers(len(lines), size=2))
    how = rng.integers(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines[at], lines[other] = lines[other], lines[at]
    elif how == 2:
        lines.insert(at, lines[other])
    elif how == 3:
        lines[at] = lines[at].partition(b"=")[0] + b"="
    else:
        lines[at] += b" " + str(rng.choice(_NUMBERS)).encode()
    return b"\n".join(lines)


_DOCTYPES = [
    b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>',
    b'<!DOCTYPE x SYSTEM "file:///etc/passwd">',
]


def _pmml(content: bytes, rng: Rng, _: str) -> bytes:
    how = rng.integers(6)
    if how < 2:
        return _number(content, rng)
    if how == 2:
        return content.replace(b"?>", b"?>" + _DOCTYPES[int(rng.integers(2))], 1)
    elements = list(re.finditer(rb"<\w+[^<>]*/>", content))
    if how == 3:
        levels = int(rng.choice([10, 3_000, 50_000]))
        return content.replace(b"<Header/>", b"<Header>" + b"<a>" * levels + b"</a>" * levels + b"</Header>")
    if not elements:
        return content
    one, two = (elements[int(k)] for k in rng.integers(len(elements), size=2))
    if how == 4:
        return content[: one.start()] + two.group() * int(rng.integers(0, 4)) + content[one.end() :]
    words = [b"continuous", b"categorical", b"ordinal", b"softmax", b"logit", b"none", b"regression", b"target", b""]
    names = list(re.finditer(rb'"[A-Za-z]+"', content))
    which = names[int(rng.integers(len(names)))]
    return content[: which.start()] + b'"' + words[int(rng.integers(len(words)))] + b'"' + content[which.end() :]


_KEYS = [
    *("label", "group", "financial_features", "model", "n_steps", "method", "output", "n_permutations", "random_state"),
    *("favorable", "limits", "fail_on", "by", "drop", "ids", "clusters", "sample_weight", "decisions", "max_distance"),
    *("decision_threshold", "consistency_threshold", "reference", "quick", "group_probabilities", "draws", "unit"),
    *("reason_map", "n_reasons", "sql", "template", "encoding", "decimal", "thousands", "missing", "positive_label"),
    *("trust_pickle", "keep_group", "drop_missing", "evidence", "regressions", "unknown_key", "financial"),
    *("engine", "scheduler", "stream", "attributions_file", "scores", "reason_codes", "columns", "checkpoint", "pack"),
    *("memo", "labels", "reference_group", "resume", "n_jobs", "device", "sheet", "out", "env", "start", "outcomes"),
]


_TOML_VALUES: dict[str, list[str]] = {
    "number": [
        *("0", "-1", "1", "3", "0.5", "1e308", "nan", "inf", "-inf", "9223372036854775807", "1e-300", "0x10", "40"),
    ],
    "text": [
        *('""', '"x"', '"income"', '"high"', '"low"', '"\\u001b[2J"', '"canary.pkl"', '"linear.onnx"'),
        "'../people.csv'",
        *(
            '"dask"',
            '"spark"',
            '"tcp://127.0.0.1:9"',
            '"sc://127.0.0.1:9"',
            '"https://127.0.0.1:9/x.csv"',
            '"s3://x/y"',
        ),
        *('"delta:x"', '"iceberg:a/b.c"', '"//127.0.0.1/x.csv"', '"/etc/passwd"', '"file:///etc/passwd"', '"/tmp/out"'),
        *("\"select * from '/etc/passwd'\"", '"simplecache::file:///etc/passwd"', '"people.csv"', '"house.docx"'),
    ],
    "list": [
        *("[]", '["income"]', '[""]', '["debt", "debt"]', '["cec.mean > x"]', '["excess > 0"]', '["sex"]'),
        '["city", "age"]',
    ],
    "other": ["true", "false", "[1]", "[[[]]]", "{}", "{a = 1}", "1979-05-27", "9" * 5_000, '"' + "y" * 3_000 + '"'],
}


def _toml(content: bytes, rng: Rng, _: str) -> bytes:
    if rng.random() < 0.02:
        return content + b"\ndrop = " + b"[" * _DEEP + b"]" * _DEEP
    lines = content.split(b"\n")
    at = int(rng.integers(len(lines)))
    key, _, old = lines[at].partition(b"=")
    like = {b'"': "text", b"[": "list", b"t": "other"}.get(old.strip()[:1], "number")
    kind = like if rng.random() < 0.7 else str(rng.choice(list(_TOML_VALUES)))
    value = str(rng.choice(_TOML_VALUES[kind])).encode()
    how = rng.integers(8)
    if how == 0:
        del lines[at]
    elif how < 4 and old:
        lines[at] = key + b"= " + value
    elif how < 7:
        lines.insert(0, str(rng.choice(_KEYS)).encode() + b" = " + value)
    else:
        lines.insert(at, rng.choice([lines[at], b"[limits]", b"[a.b]", b"\xff\xfe", b"x", b"= 1", b'"" = 1']))
    return b"\n".join(lines)


# -- archives


def unzipped(content: bytes) -> dict[str, bytes] | None:
    """The parts of an archive by name; None where it cannot be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, NotImplementedError, EOFError, RuntimeError):
        return None


def archived(parts: dict[str, bytes]) -> bytes:
    """An archive of parts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def _skops(content: bytes, rng: Rng, canary: str) -> bytes:
    parts = unzipped(content)
    if not parts or "schema.json" not in parts:
        return content
    how = rng.integers(5)
    arrays = [name for name in parts if name.endswith(".npy")]
    if how == 0 and arrays:
        name = arrays[int(rng.integers(len(arrays)))]
        parts[name] = _array(parts[name], rng)
    elif how == 1 and arrays:
        one, two = (arrays[int(k)] for k in rng.integers(len(arrays), size=2))
        parts[one] = parts[two]
    else:
        try:
            schema = json.loads(parts["schema.json"])
        except ValueError:
            return content
        _reckless(schema, rng, canary) if how == 2 else alter_tree(schema, rng)
        parts["schema.json"] = json.dumps(schema).encode()
    return archived(parts)


def _array(content: bytes, rng: Rng) -> bytes:
    """A file of numpy with another shape, another type, other values, or far more of them."""
    how = rng.integers(4)
    if how == 0:
        return re.sub(
            rb"'shape': \([^)]*\)", b"'shape': (" + str(rng.choice(_NUMBERS[:9])).encode() + b",)", content, count=1
        )
    if how == 1:
        return re.sub(
            rb"'descr': '[^']*'", b"'descr': '" + rng.choice([b"|O", b"<i8", b"<f8", b"|S9"]) + b"'", content, count=1
        )
    if how == 2:
        buffer = io.BytesIO()
        np.save(buffer, np.zeros(int(rng.choice([0, 1, 5_000_000]))))
        return buffer.getvalue()
    return content[:128] + altered_bytes(content[128:] or b"0", [content], rng)


def _reckless(schema: Any, rng: Rng, canary: str) -> None:
    """A node is to call a function of the file's choosing."""
    nodes = [holder[key] for holder, key in _places(schema, []) if isinstance(holder[key], dict)]
    nodes = [node for node in nodes if "__class__" in node] or [schema]
    node = nodes[int(rng.integers(len(nodes)))]
    module, _, name = str(rng.choice(_RECKLESS)).rpartition(".")
    word = f"touch '{canary}'" if name in ("system", "Popen") else f"open({canary!r}, 'w')"
    node["__module__"], node["__class__"] = module, name
    loaders = [
        "FunctionNode",
        "MethodNode",
        "PartialNode",
        "TypeNode",
        "ObjectNode",
        "OperatorFuncNode",
        "SliceNode",
        "TupleNode",
    ]
    node["__loader__"] = str(rng.choice(loaders))
    text = {
        "__class__": "str",
        "__module__": "builtins",
        "__loader__": "JsonNode",
        "content": json.dumps(word),
        "is_json": True,
        "__id__": 1,
    }
    arguments = {
        "__class__": "tuple",
        "__module__": "builtins",
        "__loader__": "TupleNode",
        "content": [text],
        "__id__": 2,
    }
    node.setdefault("attrs", arguments)
    node["content"] = rng.choice(
        np.array([text, arguments, module, {"module_path": module, "function": name}, [text]], dtype=object)
    )


def _pack(content: bytes, rng: Rng, canary: str) -> bytes:
    parts = unzipped(content)
    if not parts:
        return content
    names = [name for name in parts if name.endswith((".json", ".toml", ".sha256", ".txt"))]
    name = names[int(rng.integers(len(names)))]
    form = {"json": _json, "toml": _toml}.get(name.rpartition(".")[2], _lines)
    parts[name] = form(parts[name], rng, canary)
    if rng.random() < 0.2:
        parts[str(rng.choice(["../outside", "/tmp/outside", "audit.json ", "x" * 300, "a/b"]))] = b"0"
    manifest = "MANIFEST.sha256"
    if manifest in parts and name != manifest and rng.random() < 0.8:  # whoever alters a pack can sum it up again
        rest = {part: hashlib.sha256(content).hexdigest() for part, content in parts.items() if part != manifest}
        parts[manifest] = "".join(f"{digest}  {part}\n" for part, digest in sorted(rest.items())).encode()
    return archived(parts)


# -- protobuf


def _onnx(content: bytes, rng: Rng, canary: str) -> bytes:
    import onnx

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
        messages = list(_messages(proto))
        if rng.random() < 0.7:  # what computes, and not only what describes
            parts = ("NodeProto", "AttributeProto", "TensorProto")
            messages = [part for part in messages if type(part).__name__ in parts] or messages
        message = messages[int(rng.integers(len(messages)))]
        _alter_message(message, rng, canary)
        return proto.SerializeToString()
    except Exception:  # too damaged for the library of the format
        return altered_bytes(content, [content], rng)


def _messages(message: Any) -> Any:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if _is_many(field) else [value]:
                yield from _messages(inner)


def _is_many(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if found is None else bool(found)


_OPERATORS = [
    "Loop",
    "If",
    "Scan",
    "Identity",
    "Gemm",
    "MatMul",
    "Tile",
    "Expand",
    "Range",
    "Sigmoid",
    "Softmax",
    "Exp",
    "Cast",
]


def _alter_message(message: Any, rng: Rng, canary: str) -> None:
    fields = message.ListFields()
    if type(message).__name__ == "TensorProto" and rng.random() < 0.3:
        message.data_location = 1
        entry = message.external_data.add()
        entry.key, entry.value = "location", canary
        return
    if not fields:
        return
    field, value = fields[int(rng.integers(len(fields)))]
    if _is_many(field):
        at = int(rng.integers(len(value)))
        if rng.random() < 0.4:
            del value[at]
        elif field.message_type is not None:
            value.add().CopyFrom(value[at])
        else:
            value[at] = _scalar(field, value[at], rng)
    elif field.message_type is None:
        word = str(rng.choice(_OPERATORS)) if field.name == "op_type" else _scalar(field, value, rng)
        setattr(message, field.name, word)
    else:
        message.ClearField(field.name)


def _scalar(field: Any, value: Any, rng: Rng) -> Any:
    if isinstance(value, str):
        return str(rng.choice(["", "x", value + "x", "\u202e"]))
    if isinstance(value, bytes):
        return altered_bytes(value or b"0", [value or b"0"], rng)
    if isinstance(value, float):
        return float(rng.choice([0.0, -value, 1e38, float("nan"), float("inf"), value + 1]))
    large = 2**63 - 1 if field.cpp_type == field.CPPTYPE_INT64 else 2**31 - 1
    return int(
        rng.choice(
            [0, 1, -1, 2, -value, value + 1, 10**6, large, -large],
        )
    )


# -- our own


def _safetensors(content: bytes, rng: Rng, _: str) -> bytes:
    """Weights or words of a model of ours are altered and signed again, or the header is altered."""
    from safetensors.torch import load

    from evenhand.training.model_file import _digest, tensor_bytes

    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
        words = header["__metadata__"]
        if rng.random() < 0.25:
            alter_tree(header, rng)
            altered = json.dumps(header).encode()
            return len(altered).to_bytes(8, "little") + altered + content[8 + length :]
        tensors = load(content)
        if rng.random() < 0.3:
            name = str(rng.choice(sorted(tensors)))
            change: Callable[[Any], Any] = [
                lambda t: t * 1e30,
                lambda t: t * float("nan"),
                lambda t: t[:1],
                lambda t: -t,
            ][int(rng.integers(4))]
            tensors[name] = change(tensors[name]).contiguous()
        else:
            said = json.loads(words["content"])
            alter_tree(said, rng)
            words["content"] = json.dumps(said)
        words["sha256"] = _digest(tensors, words["content"])
        return tensor_bytes(tensors, words)
    except Exception:  # too damaged for the library of the format
        return altered_bytes(content, [content], rng)


_FORMS: dict[str, Callable[[bytes, Rng, str], bytes]] = {
    "json": _json,
    "ubj": lambda content, rng, _: altered_bytes(content, [content], rng),
    "txt": _lines,
    "cbm": lambda content, rng, _: altered_bytes(content, [content], rng),
    "onnx": _onnx,
    "pmml": _pmml,
    "skops": _skops,
    "safetensors": _safetensors,
    "pkl": lambda content, rng, _: altered_bytes(content, [content], rng),
    "joblib": lambda content, rng, _: altered_bytes(content, [content], rng),
    "toml": _toml,
    "zip": _pack,
}
