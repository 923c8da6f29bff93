// Theme, progress, and the filter of pairs. Every page works without it, except that progress needs a reload.
"use strict";
const root = document.documentElement;
// The cookie has the token now: keep it out of the address bar and the history.
const address = new URL(location);
address.searchParams.delete("token");
history.replaceState(null, "", address);
const button = document.getElementById("theme");
const isDark = () =>
  root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
function showTheme() {
  button.textContent = isDark() ? "Light colors" : "Dark colors";
  button.setAttribute("aria-pressed", String(isDark()));
}
if (localStorage.theme) root.dataset.theme = localStorage.theme;
button.addEventListener("click", () => {
  root.dataset.theme = localStorage.theme = isDark() ? "light" : "dark";
  showTheme();
});
showTheme();

const box = document.querySelector("[data-poll]");
async function poll() {
  try {
    const answer = await fetch(box.dataset.poll);
    const text = await answer.text();
    const before = box.firstElementChild.dataset.state;
    if (answer.ok && text !== box.innerHTML) box.innerHTML = text;
    if (!answer.ok || box.firstElementChild.dataset.state !== before) location.reload();
  } catch {
    box.textContent = "The app does not answer: was it stopped in the terminal?";
    return;
  }
  setTimeout(poll, 1000);
}
if (box) setTimeout(poll, 500);

const filter = document.querySelector("[data-filter]");
function show() {
  const words = filter.elements.q.value.toLowerCase();
  const all = [...document.querySelectorAll(filter.dataset.filter)];
  for (const one of all) one.hidden = !one.textContent.toLowerCase().includes(words);
  document.getElementById("found").textContent = `${all.filter((one) => !one.hidden).length} of ${all.length} pairs`;
}
filter?.addEventListener("submit", (event) => event.preventDefault());
filter?.addEventListener("input", show);
if (filter) show();
