// The pair explorer of the report.
(() => {
"use strict";
const byId = (id) => document.getElementById(id);

// Elements are created with text only: the data are never read as HTML.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}
const fixed = (value, places = 3) =>
  value === null ? "not estimated" : value.toFixed(places).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");

const data = JSON.parse(byId("pair-data").textContent);
const n = data.person.length;
const PAGE = 12;
const FEATURES = 12;
const state = { sort: null, down: true, page: 0, chosen: n ? 0 : -1, all: false, raw: false, rows: [] };
const decided = (value) => (value ? "favorable" : "unfavorable");
const cell = (column, side, i) => {
  const value = column[side][i];
  if (value === null) return "missing";
  return column.levels ? column.levels[value] : String(value).replace("-", "−");
};
const COLUMNS = [
  ["Person", (i) => data.person[i], "n"],
  ["Match", (i) => data.match[i], "n"],
  ["Group", (i) => data.groups[data.group[i]], ""],
  ["Matched in", (i) => data.groups[data.other[i]], "wide"],
  ["Decisions", (i) => `${decided(data.decision[i])}, ${decided(data.match_decision[i])}`, "wide"],
  ["Score", (i) => data.score[i], "n wide"],
  ["Score of match", (i) => data.match_score[i], "n wide"],
  ["CEC", (i) => data.cec[i], "n"],
  ["Placebo", (i) => data.placebo_cec[i], "n wide"],
  ["q", (i) => data.q_value[i], "n wide"],
  ["Regime", (i) => data.regime[i], ""],
];
const texts = Array.from({ length: n }, (_, i) =>
  [data.person[i], data.match[i], data.groups[data.group[i]], data.groups[data.other[i]],
    ...data.values.flatMap((column) => [cell(column, "own", i), cell(column, "match", i)])].join("\n").toLowerCase());

const FLAGS = {
  strong: (i) => i < data.n_strongest,
  q: (i) => data.q_value[i] !== null && data.q_value[i] <= 0.05,
  over: (i) => data.placebo_cec[i] !== null && data.cec[i] > data.placebo_cec[i],
  none: (i) => data.shared_reasons[i] === 0,
  short: (i) => data.negligible[i] === 1,
};
const DECISIONS = {
  same: (i) => data.decision[i] === data.match_decision[i],
  different: (i) => data.decision[i] !== data.match_decision[i],
  yes: (i) => data.decision[i] === 1 && data.match_decision[i] === 1,
  no: (i) => data.decision[i] === 0 && data.match_decision[i] === 0,
};
function filtered() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const regime = byId("f-regime").value;
  const group = byId("f-group").value;
  const decision = DECISIONS[byId("f-decision").value];
  const flag = FLAGS[byId("f-flag").value];
  // A word that names a person is searched as such first: "17" should not find everyone who has a 17 somewhere.
  const names = (i) => [data.person[i], data.match[i]].map((name) => String(name).toLowerCase());
  const isName = words.length === 1 && data.person.some((_, i) => names(i).includes(words[0]));
  const finds = isName
    ? (i) => names(i).includes(words[0])
    : (i) => words.every((word) => texts[i].includes(word));
  const rows = [];
  for (let i = 0; i < n; i += 1) {
    if ((!regime || data.regime[i] === regime) && (group === "" || data.group[i] === Number(group)) &&
        (!decision || decision(i)) && (!flag || flag(i)) && finds(i)) rows.push(i);
  }
  return rows;
}
function sorted(rows) {
  if (state.sort === null) return rows;
  const value = COLUMNS[state.sort][1];
  const sign = state.down ? -1 : 1;
  return rows.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return (x === null) - (y === null); // not estimated: last, either way
    return sign * (typeof x === "string" ? x.localeCompare(y) : x - y) || a - b;
  });
}
function refresh() {
  state.rows = sorted(filtered());
  state.page = 0;
  if (!state.rows.includes(state.chosen) && state.rows.length) choose(state.rows[0]);
  showRows();
}
function showRows() {
  const pages = Math.max(1, Math.ceil(state.rows.length / PAGE));
  const part = state.rows.slice(state.page * PAGE, (state.page + 1) * PAGE);
  byId("found").textContent = `${state.rows.length.toLocaleString("en")} of ${n.toLocaleString("en")} pairs`;
  byId("page").textContent = `Page ${state.page + 1} of ${pages}`;
  byId("previous").disabled = state.page === 0;
  byId("next").disabled = state.page + 1 >= pages;
  document.querySelectorAll("#pairs thead th").forEach((th, place) => {
    th.setAttribute("aria-sort", place !== state.sort ? "none" : state.down ? "descending" : "ascending");
  });
  byId("pairs").tBodies[0].replaceChildren(...part.map((i) => {
    const cells = COLUMNS.slice(1).map(([name, value, kind]) => {
      const shown = value(i);
      const text = name === "Regime" ? make("span", { class: `tag ${shown}` }, shown)
        : typeof shown === "string" || name === "Match" ? String(shown) : fixed(shown);
      return make("td", { class: kind }, text);
    });
    const button = make("button", { type: "button", "data-pair": i,
      "aria-label": `Show person ${data.person[i]} and match ${data.match[i]}` }, String(data.person[i]));
    const row = make("tr", { "aria-current": String(i === state.chosen) },
      make("th", { scope: "row", class: "n" }, button), ...cells);
    row.addEventListener("click", () => { choose(i); markChosen(); });
    return row;
  }));
}
function markChosen() {
  document.querySelectorAll("#pairs tbody tr").forEach((row) => {
    row.setAttribute("aria-current", String(Number(row.querySelector("button").dataset.pair) === state.chosen));
  });
}
function choose(i) {
  state.chosen = i;
  showPair();
}
// Rank of each feature's reason among the principal reasons of a declined person.
function reasons(codes) {
  const place = new Map(codes.map((code, k) => [code, k + 1]).filter(([code]) => code >= 0));
  return new Map(data.reason_of.map((code, j) => [j, place.get(code)]).filter(([, at]) => at));
}
function showPair() {
  const i = state.chosen;
  if (i < 0) return;
  const sides = [["own", data.own, data.own_length, "one"], ["match", data.match_attribution, data.match_length, "match"]];
  const places = [data.reasons[i], data.match_reasons[i]].map(reasons);
  const size = (side, j) => sides[side][1][j][i] / 1e4 * (state.raw ? sides[side][2][i] : 1);
  const order = data.features.map((_, j) => j)
    .sort((a, b) => Math.max(...[0, 1].map((s) => Math.abs(size(s, b)))) - Math.max(...[0, 1].map((s) => Math.abs(size(s, a)))));
  const largest = Math.max(...order.slice(0, 1).flatMap((j) => [0, 1].map((s) => Math.abs(size(s, j)))), 1e-12);
  const rows = order.slice(0, state.all ? order.length : FEATURES).map((j) => {
    const isShared = places[0].has(j) && places[1].has(j);
    const cells = sides.map(([side, , , who], s) => {
      const value = size(s, j);
      const width = Math.abs(value) / largest * 50;
      const bar = make("i");
      bar.style.width = `${width}%`;
      bar.style.left = `${value < 0 ? 50 - width : 50}%`;
      const text = make("span", {}, cell(data.values[j], side, i),
        places[s].has(j) ? make("small", { class: "why" }, `reason ${places[s].get(j)}`) : null);
      return make("td", { class: who }, make("div", { class: "cell" }, text,
        make("span", { class: "bar", "aria-hidden": "true" }, bar), make("output", {}, fixed(value, 2))));
    });
    const notes = [data.financial[j] ? "financial" : "", isShared ? "shared reason" : ""].filter(Boolean).join(", ");
    return make("tr", { class: isShared ? "shared" : null },
      make("th", { scope: "row" }, data.features[j], make("small", {}, notes)), ...cells);
  });
  const card = (title, group, score, decision, who) => make("div", { class: `person ${who}` },
    make("h4", {}, `${title}, ${group}`), make("p", {}, make("b", {}, fixed(score)), ` score, ${decided(decision)}`));
  const isSame = data.decision[i] === data.match_decision[i];
  const isUnlike = data.cec[i] > data.threshold;
  const finding = (text, kind = "") => make("li", { class: kind }, text);
  const raw = make("input", { type: "checkbox", id: "raw" });
  raw.checked = state.raw;
  raw.addEventListener("change", () => { state.raw = raw.checked; showPair(); byId("raw").focus(); });
  const more = order.length > FEATURES
    ? make("button", { type: "button", id: "all" }, state.all ? `Show ${FEATURES} features` : `Show all ${order.length} features`) : null;
  more?.addEventListener("click", () => { state.all = !state.all; showPair(); byId("all").focus(); });
  byId("pair").replaceChildren(
    make("h3", {}, `Person ${data.person[i]} and match ${data.match[i]} `, make("span", { class: `tag ${data.regime[i]}` }, `regime ${data.regime[i]}`)),
    make("div", { class: "people" },
      card(`Person ${data.person[i]}`, data.groups[data.group[i]], data.score[i], data.decision[i], ""),
      card(`Match ${data.match[i]}`, data.groups[data.other[i]], data.match_score[i], data.match_decision[i], "match")),
    make("ul", { class: "findings" },
      finding(isSame ? "Same decision" : "Different decisions", isSame ? "same" : "differs"),
      finding(`${isUnlike ? "Different" : "Same"} reasoning: CEC ${fixed(data.cec[i])}, threshold ${data.threshold}`, isUnlike ? "differs" : "same"),
      finding(`Placebo pairs: ${fixed(data.placebo_cec[i])}`), finding(`q-value: ${fixed(data.q_value[i])}`),
      finding(`Input gap ${fixed(data.input_gap[i])}, reasoning gap ${fixed(data.reasoning_gap[i])}`),
      finding(`Distance ${fixed(data.distance[i], 2)}`), finding(`Label of both: ${data.label[i] ? "favorable" : "unfavorable"}`)),
    make("p", {}, state.raw ? "Bars: how much each feature adds toward the favorable outcome, from the person's baseline."
      : "Bars: each feature's part of the explanation (attributions scaled to length 1, which is what the CEC score compares).",
      " Reasons are given to declined people: what counts most against them, measured from the mean of approved people; shared reasons are marked."),
    make("div", { class: "options" }, make("label", {}, raw, " Show unscaled attributions"), more),
    make("table", { class: "features" }, make("caption", { class: "hidden" }, "Values and attributions of the two people"),
      make("thead", {}, make("tr", {}, ...["Feature", `Person ${data.person[i]}`, `Match ${data.match[i]}`].map((t) => make("th", { scope: "col" }, t)))),
      make("tbody", {}, ...rows)));
}
function turn(by) { state.page += by; showRows(); }

byId("f-group").append(...data.groups.map((name, place) => make("option", { value: place }, name)));
byId("pairs").tHead.append(make("tr", {}, ...COLUMNS.map(([name, , kind], place) => {
  const button = make("button", { type: "button" }, name);
  button.addEventListener("click", () => {
    state.down = state.sort === place ? !state.down : kind.startsWith("n") && place > 1;
    state.sort = place;
    refresh();
  });
  return make("th", { scope: "col", class: kind, "aria-sort": "none" }, button);
})));
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", refresh);
byId("filters").addEventListener("reset", () => setTimeout(refresh));
byId("previous").addEventListener("click", () => turn(-1));
byId("next").addEventListener("click", () => turn(1));
byId("pairs").tBodies[0].addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const buttons = [...document.querySelectorAll("#pairs tbody button")];
  const next = buttons.indexOf(document.activeElement) + step;
  if (next >= 0 && next < buttons.length) return buttons[next].focus();
  if (byId(step > 0 ? "next" : "previous").disabled) return;
  turn(step);
  const fresh = document.querySelectorAll("#pairs tbody button");
  fresh[step > 0 ? 0 : fresh.length - 1].focus();
});
refresh();
showPair();
if (!n) byId("pair").textContent = "No pair was scored.";
})();
