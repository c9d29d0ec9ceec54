// The table of points: sorted and searched here, each point opens into its runs; the address keeps all of it.

import { el, find, number, view } from "/static/page.js";

const MOST_ROWS = 400; // more are found by searching
let data = null;

const opened = () => new Set(view.all("open"));
const keyOf = (point) => Object.entries(point.dials).map(([name, value]) => `${name}=${value.text}`).join(" ") || "all";

function sorting() {
  const [key, way] = view.get("sort").split(" ");
  return { key: key || "", way: way === "down" ? -1 : 1 };
}

const worth = (point, key) => (key === "n" ? point.n : key in point.dials ? point.dials[key].value : point.values[key]?.mean);

function sorted(points) {
  const { key, way } = sorting();
  if (!key) return points;
  const known = (value) => value !== undefined && value !== null && value !== "NaN";
  return [...points].sort((one, other) => {
    const [a, b] = [worth(one, key), worth(other, key)];
    if (!known(a) || !known(b)) return Number(known(b)) - Number(known(a));
    return way * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  });
}

function headOf(key, label, title, kind) {
  const { key: by, way } = sorting();
  const next = by === key && way === 1 ? `${key} down` : by === key ? "" : `${key} up`;
  return el("th", { scope: "col", class: kind, title, "aria-sort": by === key ? (way === 1 ? "ascending" : "descending") : null },
    el("button", { type: "button", class: "plain", onclick: () => { view.set({ sort: next }); draw(); find(`.points th[data-key="${CSS.escape(key)}"] button`)?.focus(); } }, el("bdi", {}, label)));
}

function rowsOf(point) {
  const key = keyOf(point);
  const isOpen = opened().has(key);
  const toggle = () => {
    const open = opened();
    if (!open.delete(key)) open.add(key);
    view.set({ open: [...open] });
    draw();
    [...document.querySelectorAll(".points tr.point")].find((row) => row.dataset.key === key)?.querySelector("button")?.focus();
  };
  const row = el("tr", { class: "point", "data-key": key },
    el("td", { class: "label" }, el("button", { type: "button", class: "plain", "aria-expanded": String(isOpen), "aria-label": `runs of ${key}`, onclick: toggle }, isOpen ? "▾" : "▸")),
    data.dials.map((dial) => el("td", { class: "label" }, el("bdi", {}, point.dials[dial.name]?.text ?? "–"))),
    el("td", { title: Object.entries(point.states).map(([state, n]) => `${n} ${state}`).join(", ") }, point.n === point.of ? String(point.n) : `${point.n}/${point.of}`),
    data.metrics.map((metric) => el("td", {}, point.values[metric.name]?.text ?? "–")));
  return isOpen ? [row, ...point.runs.map(runRow)] : [row];
}

const runRow = (run) => el("tr", { class: "run" }, el("td"),
  el("td", { class: "label", colspan: Math.max(1, data.dials.length) }, el("a", { href: `/run/${encodeURIComponent(run.id)}`, class: "mono" }, run.id.slice(0, 12)), ` seed ${run.seed} `,
    el("span", { class: "state", "data-state": run.status, title: run.cause }, `${run.status}, step ${number(run.step)}`)),
  el("td"), data.metrics.map((metric) => el("td", {}, run.values[metric.name] ?? "–")));

function draw() {
  const wanted = view.get("find").trim().toLowerCase().split(/\s+/).filter(Boolean);
  const textOf = (point) => `${keyOf(point)} ${point.runs.map((run) => `${run.id} ${run.status}`).join(" ")}`.toLowerCase();
  const found = sorted(data.points.filter((point) => wanted.every((word) => textOf(point).includes(word))));
  const shown = found.slice(0, MOST_ROWS);
  const heads = [el("th", {}, el("span", { class: "unseen" }, "open")), ...data.dials.map((dial) => headOf(dial.name, dial.label, dial.name, "label")), headOf("n", "n", "runs in the means", ""),
    ...data.metrics.map((metric) => headOf(metric.name, metric.label, metric.meaning, ""))];
  heads.slice(1).forEach((head, place) => { head.dataset.key = [...data.dials.map((dial) => dial.name), "n", ...data.metrics.map((metric) => metric.name)][place]; });
  find(".points").replaceChildren(el("caption", { class: "unseen" }, "Points: mean ± std over seeds"), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, shown.flatMap(rowsOf)));
  find("#count").textContent = `${number(found.length)} of ${number(data.points.length)} points${found.length > shown.length ? `; the first ${MOST_ROWS} are shown` : ""}`;
}

/** Shows the points that the server told. */
export function showPoints(found) {
  data = found;
  draw();
}

const search = find("#find");
search.value = view.get("find");
search.addEventListener("input", () => { view.set({ find: search.value }); if (data) draw(); });
addEventListener("popstate", () => { search.value = view.get("find"); if (data) draw(); });
