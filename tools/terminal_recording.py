"""A recording of the terminal for the README, as an animated SVG: the commands of the first audit, run as they are.

The commands run in a pseudo-terminal, and what they leave on the screen is drawn. Waits are shortened, and the
picture leaves out the lines after the answers, but for the place of the report. It needs no network.

Run: .venv/bin/python tools/terminal_recording.py docs/images/terminal.svg
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import escape

COMMANDS = (
    "evenhand data save messy --out messy",
    "evenhand check messy/applications.csv --out check",
    "sed -i.bak 's/^# groups =/groups =/; s/^# missing =/missing =/' check/audit.toml",
    "evenhand audit messy/applications.csv --config check/audit.toml --model messy/model.skops --out report",
)
FROM, TO = "scikit-learn LogisticRegression", "Report: "  # what is between them is left out
COLUMNS, ROWS = 104, 34
WIDTH, HEIGHT, MARGIN, BAR = 7.8, 17, 16, 34  # of a character, of a line, around the text, above it
KEY, LINE, PAUSE, END = 0.03, 0.09, 2.5, 12.0  # seconds per key, per line, after a command, and at the end
COLORS = {"31": "#ff7b72", "32": "#3fb950", "33": "#d29922", "36": "#39c5cf", "2": "#8b949e"}
TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")

Line = list[tuple[str, str]]


def run(command: str, folder: str) -> str:
    """What a command writes to a terminal."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvp("sh", ["sh", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    written = b""
    try:
        while part := os.read(terminal, 1 << 16):
            written += part
    except OSError:  # Linux says so when the command has ended
        pass
    if os.waitpid(process, 0)[1]:
        raise SystemExit(f"{command} failed:\n{written.decode()}")
    return written.decode()


def screen(written: str) -> list[Line]:
    """The lines that are left on a terminal, each a list of characters and their styles."""
    lines: list[Line] = [[]]
    row = column = 0
    style = ""
    for parameters, code, to_start, to_next, text in TOKEN.findall(written):
        if code == "m":
            style = "" if parameters in ("", "0") else parameters
        elif code == "A":
            row -= int(parameters or 1)
        elif code == "K":
            lines[row] = []
        elif to_start:
            column = 0
        elif to_next:
            row += 1
            lines += [[]] * (row + 1 - len(lines))
        elif text:
            padded = lines[row] + [(" ", "")] * (column - len(lines[row]))
            lines[row] = padded[:column] + [(one, style) for one in text] + padded[column + len(text) :]
            column += len(text)
    return lines if lines[-1] else lines[:-1]


def shortened(lines: list[Line]) -> list[Line]:
    """Without what is between two lines."""
    texts = ["".join(one for one, _ in line) for line in lines]
    begin = next((k for k, text in enumerate(texts) if text.startswith(FROM)), None)
    end = next((k for k, text in enumerate(texts) if text.startswith(TO)), 0)
    return lines if begin is None else [*lines[:begin], [(one, "2") for one in "..."], lines[end]]


def drawn(line: Line, y: float) -> str:
    """A line as text, placed piece by piece, so that tables stand in columns in any font."""
    text, parts, column = "".join(one for one, _ in line), [], 0
    for style, same in groupby(line, key=lambda one: one[1]):
        n = sum(1 for _ in same)
        for piece in re.finditer(r"\S+(?: \S+)*", text[column : column + n]):
            codes = style.split(";")
            color = next((f' fill="{COLORS[code]}"' for code in codes if code in COLORS), "")
            weight = ' font-weight="700"' if "1" in codes else ""
            x = MARGIN + (column + piece.start()) * WIDTH
            length = len(piece.group()) * WIDTH
            place = f'x="{x:.1f}" y="{y:.0f}" textLength="{length:.1f}"'
            parts.append(f'<text {place} lengthAdjust="spacingAndGlyphs"{color}{weight}>{escape(piece.group())}</text>')
        column += n
    return "".join(parts)


def picture(sessions: list[tuple[str, list[Line]]]) -> str:
    """The animated SVG of commands and what they left on the screen."""
    texts, typed, shown = [], [], []  # texts; rows and times of commands; times at which so many lines are there
    now = 0.5
    for command, lines in sessions:
        typed.append((len(texts), len(command), now))
        shown.append(now)
        texts.append([("$", "32"), (" ", ""), *((one, "1") for one in command)])
        now += KEY * len(command) + 0.6
        for line in lines:
            shown.append(now)
            texts.append(line)
            now += LINE
        now += PAUSE
    total = now + END - PAUSE
    size = (2 * MARGIN + COLUMNS * WIDTH, BAR + MARGIN + ROWS * HEIGHT)

    def steps(name: str, states: list[tuple[float, str]]) -> str:
        frames = "".join(f"{100 * time / total:.2f}%{{{state}}}" for time, state in states)
        return f"@keyframes {name}{{{frames}}}"

    def moved(y: float, x: float = 0) -> str:
        return f"transform:translate({x:.1f}px,{y}px)"

    n = len(texts)
    scroll = [(t, moved(-HEIGHT * max(0, k + 1 - ROWS))) for k, t in enumerate(shown)]
    cover = [(t, moved(HEIGHT * (k + 1))) for k, t in enumerate(shown)]
    rules = [
        steps("scroll", [(0, moved(0)), *scroll]),
        steps("cover", [(0, moved(0)), *cover]),
        f".scroll,.cover{{animation:scroll {total:.1f}s step-end infinite}}.cover{{animation-name:cover}}",
        f".scroll{{{moved(-HEIGHT * max(0, n - ROWS))}}}.cover{{{moved(HEIGHT * n)}}}",
        "@media (prefers-reduced-motion){*{animation:none!important}}",
    ]
    keys = []
    for number, (row, length, begin) in enumerate(typed):
        done, x = begin + KEY * length, MARGIN + 2 * WIDTH
        states = [(0, moved(0)), (begin, moved(0)), (done, moved(0, length * WIDTH)), (total, moved(0, length * WIDTH))]
        rules.append(steps(f"keys{number}", states))
        rules.append(
            f".keys{number}{{{moved(0, length * WIDTH)};animation:keys{number} {total:.1f}s steps({length}) infinite}}"
        )
        y = BAR + row * HEIGHT
        keys.append(
            f'<rect class="keys{number}" x="{x:.1f}" y="{y}" width="{size[0]:.0f}" height="{HEIGHT}" fill="#0d1117"/>'
        )
    body = "\n".join(drawn(line, BAR + (k + 0.75) * HEIGHT) for k, line in enumerate(texts))
    dots = "".join(
        f'<circle cx="{MARGIN + 6 + 20 * k}" cy="17" r="6" fill="{color}"/>'
        for k, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    whole = f'width="{size[0]:.0f}" height="{size[1]:.0f}"'
    frame = f'<rect {whole} rx="10" fill="#0d1117"/>'
    inside = f'<clipPath id="in"><rect y="{BAR}" width="{size[0]:.0f}" height="{ROWS * HEIGHT}"/></clipPath>'
    cover_box = f'<rect class="cover" y="{BAR}" {whole} fill="#0d1117"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]:.0f} {size[1]:.0f}" {whole} '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13" fill="#e6edf3" '
        'xml:space="preserve">\n'
        f"<title>From a messy spreadsheet to the answers: {escape('; '.join(COMMANDS))}</title>\n"
        f"<style>{''.join(rules)}</style>\n{inside}{frame}{dots}\n"
        f'<g clip-path="url(#in)"><g class="scroll">\n{body}\n{"".join(keys)}{cover_box}</g></g>\n'
        f'<rect x=".5" y=".5" width="{size[0] - 1:.0f}" height="{size[1] - 1:.0f}" rx="10" fill="none" '
        'stroke="#30363d"/>\n</svg>\n'
    )


def main(path: Path) -> None:
    """Run the commands and write the picture."""
    os.environ |= {"TERM": "xterm-256color", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with TemporaryDirectory() as folder:
        sessions = [(command, shortened(screen(run(command, folder)))) for command in COMMANDS]
    path.write_text(picture(sessions), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
