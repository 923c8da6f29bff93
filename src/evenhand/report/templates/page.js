// What every page does: theme, charts, contents, printing.
(() => {
"use strict";
const byId = (id) => document.getElementById(id);
const read = (id) => JSON.parse(byId(id).textContent);

// Colors are CSS variables, so that charts follow the toggle without being drawn again.
const root = document.documentElement;
const isDark = () =>
  root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
function showTheme() {
  byId("theme").textContent = isDark() ? "Light colors" : "Dark colors";
  byId("theme").setAttribute("aria-pressed", String(isDark()));
}
byId("theme").addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; showTheme(); });
showTheme();

// Charts.
const drawing = read("chart-data");
function draw(box) {
  const spec = structuredClone(drawing.charts[box.dataset.chart]);
  const config = structuredClone(drawing.config);
  const width = box.clientWidth;
  box.dataset.width = width;
  const isNarrow = width < 480;
  config.axis.labelLimit = Math.max(100, Math.min(230, 0.42 * width));
  config.axisXQuantitative = { tickCount: isNarrow ? 4 : 6, ...(isNarrow && { titleAnchor: "end" }) };
  config.legend.labelLimit = Math.min(260, width - 60);
  const colored = [spec, ...(spec.layer ?? [])].map((part) => part.encoding?.color).find((color) => color?.scale?.domain);
  if (colored) {
    const longest = Math.min(config.legend.labelLimit, 7 * Math.max(...colored.scale.domain.map((name) => name.length)));
    config.legend.columns = Math.max(1, Math.min(4, Math.floor((0.8 * width) / (longest + 30))));
    delete colored.legend?.columns;
  }
  spec.width = "container";
  spec.autosize = { type: "fit-x", contains: "padding" };
  return vegaEmbed(box, spec, { config, renderer: "svg", actions: false, ast: true });
}
// Charts in folds are drawn when these are opened.
const charts = [...document.querySelectorAll("[data-chart]")];
let drawnWidth = innerWidth;
const drawAll = () => Promise.all(charts.filter((box) => box.checkVisibility()).map(draw)).then(() => { root.dataset.drawn = "true"; });
drawAll();
document.querySelectorAll(".fold").forEach((fold) => fold.addEventListener("toggle", () => {
  const stale = [...fold.querySelectorAll("[data-chart]")].filter((box) => box.checkVisibility() && Number(box.dataset.width) !== box.clientWidth);
  stale.forEach(draw);
}));
let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    if (innerWidth !== drawnWidth) { drawnWidth = innerWidth; drawAll(); }
  }, 200);
});

// Contents: where the reader is.
const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    links.forEach((a) => a.removeAttribute("aria-current"));
    links.get(entry.target.id)?.setAttribute("aria-current", "true");
  }
}, { rootMargin: "-10% 0px -80% 0px" });
document.querySelectorAll("main > section").forEach((section) => seen.observe(section));

// A link into a fold opens it.
function unfold() {
  for (let part = byId(location.hash.slice(1)); part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
}
addEventListener("hashchange", unfold);
unfold();

// Print folded text, such as settings; charts cannot be drawn in time.
const opened = [...document.querySelectorAll(".fold")].filter((fold) => !fold.querySelector("[data-chart]"));
addEventListener("beforeprint", () => opened.forEach((d) => { d.dataset.was = d.open; d.open = true; }));
addEventListener("afterprint", () => opened.forEach((d) => { d.open = d.dataset.was === "true"; }));
})();
