"""Count the modules and functions of evenhand that one call visits: `python tools/visited.py [audit|given|command]`."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import evenhand as eh

PACKAGE = str(Path(eh.__file__).parent)


def visited(call: Callable[[], object]) -> set[tuple[str, str]]:
    """File and name of every function of the package that `call` enters, in all threads."""
    call()  # imports what it needs, so that no body of a module or class is counted below
    entered: set[tuple[str, str]] = set()

    def note(frame, event, _argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            entered.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered


def calls(name: str) -> Callable[[], object]:
    """The audit of a linear model on 400 people, from Python or from the command line."""
    from sklearn.linear_model import LogisticRegression

    data = eh.load_dataset("synthetic", n=400)
    model = LogisticRegression().fit(data.X, data.y)
    people = {"sensitive_features": data.group, "financial_features": data.financial_features}
    if name == "audit":
        return lambda: eh.audit(model, data.X, data.y, **people)
    if name == "given":
        scores = model.predict_proba(data.X)[:, 1]
        return lambda: eh.audit_given(data.X, data.y, scores=scores, **people)
    from evenhand.cli import main

    folder = Path(tempfile.mkdtemp())
    data.X.assign(label=data.y, group=data.group, score=model.predict_proba(data.X)[:, 1]).to_csv(folder / "people.csv")
    finances = [word for feature in data.financial_features for word in ("--financial", feature)]
    words = [str(folder / "people.csv"), "--label", "label", "--group", "group", "--scores", "score", *finances]

    def command() -> None:
        sys.argv = ["evenhand", "audit", *words, "--out", str(folder / "out")]
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise

    return command


if __name__ == "__main__":
    asked = sys.argv[1] if len(sys.argv) > 1 else "audit"
    entered = visited(calls(asked))
    modules = {file for file, _ in entered}
    print(f"{asked}: {len(modules)} modules, {len(entered)} functions")
    if "--list" in sys.argv:
        for file in sorted(modules):
            print("   ", Path(file).relative_to(PACKAGE), sum(1 for other, _ in entered if other == file))
