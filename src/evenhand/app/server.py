"""The pages, and who may see them."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import shlex
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from evenhand.app.content import in_words, preview, reasons, review
from evenhand.app.jobs import Job, Queue
from evenhand.app.runs import MODELS, Folder, OutsideError, Run, plain_name
from evenhand.app.settings import (
    CHOICES,
    DIRECTION,
    MORE,
    OPTIONS,
    OUTPUT,
    READING,
    ROLES,
    Repair,
    kind_of,
    role_of,
    shown_value,
    with_repairs,
    with_roles,
    with_values,
)
from evenhand.exceptions import EvenhandError, InvalidInputError
from evenhand.inputs.tables import ENDINGS
from evenhand.report.formatting import count
from evenhand.report.frame import environment, style
from evenhand.system import __version__
from evenhand.system.files import PrivateFolder, toml_text, write_text

MOST_BYTES = 1 << 30
"""Largest upload."""

_MOST_FIELDS = 20_000
_MOST_ROWS = 20_000  # of a large table, to check it and to take a first look
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
# A report is a page with scripts of its own: it gets an origin of its own, too, and cannot ask for anything.
_IN_A_SANDBOX = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; form-action 'none'; frame-ancestors 'self'; base-uri 'none'"
)
# What a first look leaves out: what takes time, and what only audits in batches have.
_NOT_TRIED = {"memo", "pack", "regressions", "fail_on", "quick", "stream", "resume", "batch_rows", "reference_people"}
_NOT_TRIED |= {"evidence_people", "engine", "n_jobs", "device"}
_STATIC = {"app.js": "text/javascript", "style.css": "text/css"}


class Guard(BaseHTTPMiddleware):
    """Answers only whoever knows the token, from this machine's own address and its own pages."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        super().__init__(app)
        self.token, self.cookie = token, f"evenhand-{port}"
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """The answer of the pages, or a refusal."""
        status, given = self._refusal(request), request.query_params.get("token")
        if not status:
            known = request.cookies.get(self.cookie, "") if given is None else given
            status = 0 if hmac.compare_digest(known.encode(), self.token.encode()) else 404
        answer = Response(_WORDS[status], status, media_type="text/plain") if status else await call_next(request)
        for name, value in _HEADERS.items():
            answer.headers.setdefault(name, value)
        if given is not None and not status:
            answer.headers.append("set-cookie", f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/")
        return answer

    def _refusal(self, request: Request) -> int:
        """The status of a refusal before the token is looked at; 0 for none."""
        headers, is_read = request.headers, request.method in ("GET", "HEAD")
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self.hosts or not (is_read if origin is None else origin == f"http://{host}"):
            return 403
        length = "0" if is_read else headers.get("content-length", "")
        return 411 if not length.isdecimal() else 413 if int(length) > MOST_BYTES else 0


_WORDS = {
    403: "Refused: this page answers only its own pages on this machine.",
    404: "Not found. Open the address that `evenhand app` printed.",
    411: "Refused: the size of the upload is not stated.",
    413: f"Refused: uploads have at most {MOST_BYTES >> 20} MB. Put the file in the folder and choose it there.",
}


@dataclass(frozen=True)
class Pages:
    """The pages of a folder."""

    folder: Folder
    queue: Queue

    def app(self) -> Starlette:
        """All pages."""
        read = {"/": self.home, "/new": self.new, "/static/{name}": self.static, "/status/{key:path}": self.status}
        read["/download/{file}/{name:path}"] = self.download
        for page in (self.file, self.columns, self.confirm, self.audit, self.pairs, self.page, self.comparison):
            read[f"/{page.__name__}/{{name:path}}"] = page
        written = {"/new": self.create, "/compare": self.compare, "/columns/{name:path}": self.choose}
        written |= {"/file/{name:path}": self.read_again, "/start/{name:path}": self.start}
        written["/cancel/{name:path}"] = self.cancel
        both = {"GET": read, "POST": written}
        routes = [Route(path, page, methods=[how]) for how, pages in both.items() for path, page in pages.items()]

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            await self.queue.close()
            shutil.rmtree(self.folder.uploads.path, ignore_errors=True)

        handlers: Mapping[Any, Any] = dict.fromkeys((EvenhandError, HTTPException, OSError), self.refused)
        return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)

    # What is shown

    async def home(self, request: Request) -> Response:
        runs = await asyncio.to_thread(lambda: [(run, run.headline) for run in self.folder.runs()])
        audits = [{"run": run, "state": self.state(run), **words} for run, words in runs]
        compared = sorted(path.stem for path in (self.folder.root / _COMPARISONS).glob("*.html"))
        return _page("home", "Audits", {"folder": self.folder, "audits": audits, "compared": compared})

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        own = (files("evenhand.app") / "templates" / name.replace("style", "app")).read_text(encoding="utf-8")
        return Response(style() + own if name == "style.css" else own, media_type=_STATIC[name])

    async def new(self, request: Request) -> Response:
        tables, models = await asyncio.to_thread(lambda: [self.folder.files(kind) for kind in (ENDINGS, MODELS)])
        chosen = request.query_params.get("table", "")
        return _page("new", "New audit", {"folder": self.folder, "tables": tables, "models": models, "chosen": chosen})

    async def file(self, request: Request) -> Response:
        run = self.run(request)
        values = {"preview": await asyncio.to_thread(preview, run), **self.job(f"check:{run.name}")}
        return _page("file", "The table", {"run": run, "step": 1, "fields": READING, **values})

    async def columns(self, request: Request) -> Response:
        run = self.run(request)
        if run.check is None:
            return _to(f"/file/{run.name}")
        settings, models = run.settings, await asyncio.to_thread(self.folder.files, MODELS)
        values = {
            "columns": [{**row, "role": role_of(row["column"], settings)} for row in run.check["columns"]],
            "models": sorted({name for name, _ in models} | {settings.get("model", "")} - {""}),
            **{"roles": ROLES, "reasons": reasons(run.check), "settings": settings},
            **{"direction": DIRECTION, "output": OUTPUT, "more": MORE},
            "repairs": [(one, one in Repair.all_in(settings.get("clean", {}))) for one in _repairs(run)],
        }
        return _page("columns", "Columns and model", {"run": run, "step": 2, **values})

    async def confirm(self, request: Request) -> Response:
        run = self.run(request)
        if not run.settings:
            return _to(f"/file/{run.name}")
        job = self.job(f"trial:{run.name}")
        looked = run.trial.summary if job["job"] and not job["job"].is_open else None
        values = {
            "words": in_words(run.settings, run.check, looked),
            "toml": (run.path / "audit.toml").read_text(encoding="utf-8"),
            "command": shlex.join(("evenhand", *run.command)),
        }
        return _page("confirm", "Confirm", {"run": run, "step": 3, **values, **job})

    async def audit(self, request: Request) -> Response:
        run = self.run(request)
        state, job = self.state(run), self.job(f"audit:{run.name}")
        if state == "draft":
            return _to(f"/{'confirm' if 'group' in run.settings else 'file'}/{run.name}")
        values = {
            "said": job["job"].said if job["job"] else run.facts.get("said", []),
            "command": shlex.join(("evenhand", *run.command)) if run.has_table else "",
        }
        return _page("audit", run.name.rpartition("/")[2], {"run": run, "step": 4, "state": state, **values, **job})

    async def pairs(self, request: Request) -> Response:
        run = self.run(request)
        pairs = await asyncio.to_thread(review, run)
        return _page("pairs", f"Pairs to review: {run.name}", {"run": run, "step": 4, "pairs": pairs})

    async def comparison(self, request: Request) -> Response:
        name = request.path_params["name"]
        job = self.job(f"compare:{name}")
        if job["job"] is None:
            self.folder.path(f"{_COMPARISONS}/{name}.html")
        return _page("comparison", f"Comparison: {name}", {"name": name, **job})

    async def status(self, request: Request) -> Response:
        job = self.job(request.path_params["key"])
        if job["job"] is None:
            raise HTTPException(404)
        return _page("status", "", job)

    async def download(self, request: Request) -> Response:
        run, file = self.run(request), request.path_params["file"]
        if file not in [name for name, _, _ in run.results]:
            raise OutsideError(f"There is no file {file!r} of this audit.")
        return FileResponse(run.path / file, filename=f"{plain_name(run.name)}-{file}")

    async def page(self, request: Request) -> Response:
        """A page that a command wrote, in a sandbox."""
        path = self.folder.path(request.path_params["name"])
        if path.suffix != ".html":
            raise OutsideError(f"{path.name!r} is not a page.")
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": _IN_A_SANDBOX})

    # What is done

    async def create(self, request: Request) -> Response:
        async with request.form(max_files=2, max_fields=_MOST_FIELDS) as form:
            table = await asyncio.to_thread(self._given, form, "table", ENDINGS)
            if not table:
                raise InvalidInputError("Choose a table of the folder, or drop one.")
            model = await asyncio.to_thread(self._given, form, "model", MODELS)
            run = self.folder.new_run(str(form.get("name") or Path(table).name.partition(".")[0]), {"table": table})
        run.note(model=model)
        self._check(run)
        return _to(f"/file/{run.name}")

    def _given(self, form: Any, name: str, endings: tuple[str, ...]) -> str:
        """The name of the file that was uploaded or else chosen."""
        upload, chosen = form.get(f"{name}_file"), str(form.get(name, ""))
        if isinstance(upload, UploadFile) and upload.filename:
            return self.folder.name(
                self.folder.save(upload.file, upload.filename, endings, is_kept=bool(form.get("keep")))
            )
        return self.folder.name(self.folder.path(chosen, is_upload=True)) if chosen else ""

    async def read_again(self, request: Request) -> Response:
        run = self._editable(self.run(request))
        async with request.form() as form:
            run.note(reading=with_values({}, READING, form))
        self._check(run)
        return _to(f"/file/{run.name}")

    def _check(self, run: Run) -> None:
        """Check the table, which also proposes the settings."""
        options = {key: ",".join(value) if isinstance(value, list) else value for key, value in run.reading.items()}
        given = [f"--{key}={value}" for key, value in options.items()] + _first_rows(run)

        def changed(job: Job) -> None:
            if job.state == "done":
                # An audit with two spellings of a group, or with a number as the group, is refused: mend that.
                needed = [repair for repair in Repair.all_in((run.check or {})["clean"]) if repair.key != "missing"]
                own = {"model": run.facts.get("model") or None, "stream": run.is_large or None}
                run.write_settings(with_repairs({**run.settings, **own}, needed))

        (run.path / "check.json").unlink(missing_ok=True)
        self.queue.add(f"check:{run.name}", Job(("check", run.table, *given, "--out", run.name), "short", changed))

    async def choose(self, request: Request) -> Response:
        run = self.run(request)
        found = run.check
        if found is None:
            return _to(f"/file/{run.name}")
        async with request.form(max_files=1, max_fields=_MOST_FIELDS) as form:
            roles = {row["column"]: str(form.get(f"role-{k}", "")) for k, row in enumerate(found["columns"])}
            settings = with_values(with_roles(run.settings, roles), {**DIRECTION, **OUTPUT, **MORE}, form)
            settings = with_repairs(settings, [one for k, one in enumerate(_repairs(run)) if form.get(f"repair-{k}")])
            model = await asyncio.to_thread(self._given, form, "model", MODELS)
        run = self._editable(run)
        run.write_settings({**settings, "model": model or None})
        self._try(run)
        return _to(f"/confirm/{run.name}")

    def _editable(self, run: Run) -> Run:
        """An audit whose settings may change: a new one if it has a result, or batches made with its settings."""
        if self.state(run) in ("waiting", "running"):
            raise InvalidInputError("This audit is running: cancel it before you change its settings.")
        return run.again() if run.has_result or run.has_batches else run

    def _try(self, run: Run) -> None:
        """Audit a few people, to say how labels and scores are understood before the audit starts."""
        trial = run.trial
        settings = {key: value for key, value in run.settings.items() if key not in _NOT_TRIED}
        (trial.path / "audit.json").unlink(missing_ok=True)
        config = write_text(trial.path / "audit.toml", toml_text(settings))
        where = ("--config", str(config), "--out", str(trial.path))
        self.queue.add(f"trial:{run.name}", Job(("audit", run.table, *where, "--quick", *_first_rows(run)), "short"))

    async def start(self, request: Request) -> Response:
        run = self.run(request)
        if self.state(run) in ("draft", "failed", "canceled", "stopped"):
            trial = self.queue.jobs.get(f"trial:{run.name}")
            if trial is not None:
                self.queue.cancel(trial)
            self.queue.add(f"audit:{run.name}", Job(run.command, "audits", partial(_note, run)))
        return _to(f"/audit/{run.name}")

    async def cancel(self, request: Request) -> Response:
        run = self.run(request)
        job = self.queue.jobs.get(f"audit:{run.name}")
        if job is not None:
            self.queue.cancel(job)
        return _to(f"/audit/{run.name}")

    async def compare(self, request: Request) -> Response:
        async with request.form() as form:
            runs = [self.folder.run(str(name)) for name in form.getlist("audit")]
            is_forced = bool(form.get("anyway"))
        runs = sorted((run for run in runs if run.has_result), key=lambda run: run.changed)
        if len(runs) < 2:
            raise InvalidInputError("Choose two or more finished audits to compare.")
        name = plain_name("-and-".join(run.name.rpartition("/")[2] for run in runs))
        audits = [f"{run.name}/audit.json" for run in runs]
        out = ("--out", f"{_COMPARISONS}/{name}.html", *(("--allow-different-settings",) if is_forced else ()))
        self.queue.add(f"compare:{name}", Job(("compare", *audits, *out), "short"))
        return _to(f"/comparison/{name}")

    async def refused(self, request: Request, error: Exception) -> Response:
        """A sentence on what was wrong."""
        if isinstance(error, HTTPException):
            return _page("message", "Not possible", {"words": "There is no such page."}, error.status_code)
        return _page("message", "Not possible", {"words": error}, 404 if isinstance(error, OutsideError) else 400)

    # What is known

    def run(self, request: Request) -> Run:
        """The audit that an address names."""
        return self.folder.run(request.path_params["name"])

    def job(self, key: str) -> dict[str, Any]:
        """A job by its name, if there is one, and how many are ahead of it."""
        job = self.queue.jobs.get(key)
        return {"key": key, "job": job, "before": self.queue.before(job) if job else 0}

    def state(self, run: Run) -> str:
        """Whether an audit is a draft, waiting, running, done, failed, canceled or stopped."""
        job = self.queue.jobs.get(f"audit:{run.name}")
        if job is not None:
            return job.state
        before = run.facts.get("state", "")
        if before == "running":
            return "running" if run.is_running_elsewhere else "stopped"
        return "done" if run.has_result else before or "draft"


_COMPARISONS = "comparisons"


def _note(run: Run, job: Job) -> None:
    """Keep the state of an audit, for a server that is started later."""
    run.note(state=job.state, said=job.said, process=job.process.pid if job.process else 0)
    if job.state == "done":
        run.discard_upload()


def _first_rows(run: Run) -> list[str]:
    """The option with which a large table is not read whole before its audit."""
    return [f"--rows={_MOST_ROWS}"] if run.is_large else []


def _repairs(run: Run) -> list[Repair]:
    """What `check` proposes to mend, and what the settings mend already."""
    tables = ((run.check or {}).get("clean", {}), run.settings.get("clean", {}))
    return list(dict.fromkeys(repair for clean in tables for repair in Repair.all_in(clean)))


def _to(address: str) -> Response:
    return RedirectResponse(quote(address), 303)


def _page(name: str, title: str, values: Mapping[str, Any], status: int = 200) -> Response:
    templates = environment("evenhand.app", "evenhand.report")
    templates.filters.update(count=count, size=_size, duration=_duration, shown_value=shown_value, kind=kind_of)
    templates.globals.update(table_endings=ENDINGS, model_endings=MODELS, version=__version__)
    templates.globals.update(options=OPTIONS, choices=CHOICES)
    return HTMLResponse(templates.get_template(f"{name}.html.jinja").render(title=title, **values), status)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:,.1f} KB"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def serve(folder: Path, *, port: int = 0, ready: Callable[[str], None] = print, start: str = "") -> None:
    """Show the pages of a folder until Ctrl-C.

    Parameters
    ----------
    folder
        Whose tables and audits are shown.
    port
        0 for any that is free.
    ready
        Called with the address, which holds the token, once pages can be opened.
    start
        The first page.
    """
    root = folder.resolve()
    root.mkdir(0o700, parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    with socket.socket() as listening:
        if sys.platform != "win32":  # there, it would let others listen on the same port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            raise InvalidInputError(
                f"Port {port} cannot be used: {error.strerror}; choose another with --port."
            ) from None
        listening.listen()  # whoever asks before the server runs is answered then
        port = listening.getsockname()[1]
        pages = Pages(Folder(root, PrivateFolder()), Queue(root))
        app = Guard(pages.app(), token, port)
        plain: dict[str, Any] = {"http": "h11", "ws": "none", "proxy_headers": False, "server_header": False}
        with suppress(KeyboardInterrupt):
            ready(f"http://127.0.0.1:{port}/{start}{'&' if '?' in start else '?'}token={token}")
            uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5, **plain)).run(
                sockets=[listening]
            )
