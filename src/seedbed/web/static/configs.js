// The table of configs: sorting, searching, and each config's runs; the URL keeps this state.

import { el, find, number, view } from "/static/page.js";

const MAX_ROWS = 400; // the rest is found by searching
let data = null;

const opened = () => new Set(view.all("open"));
const keyOf = (config) => Object.entries(config.settings).map(([name, value]) => `${name}=${value.text}`).join(" ") || "all";

function sorting() {
  const [key, way] = view.get("sort").split(" ");
  return { key: key || "", way: way === "down" ? -1 : 1 };
}

const sortValue = (config, key) => (key === "n" ? config.n : key in config.settings ? config.settings[key].value : config.values[key]?.mean);

function sorted(configs) {
  const { key, way } = sorting();
  if (!key) return configs;
  const known = (value) => value !== undefined && value !== null && value !== "NaN";
  return [...configs].sort((one, other) => {
    const [a, b] = [sortValue(one, key), sortValue(other, key)];
    if (!known(a) || !known(b)) return Number(known(b)) - Number(known(a));
    return way * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  });
}

function headOf(key, label, title, kind) {
  const { key: by, way } = sorting();
  const next = by === key && way === 1 ? `${key} down` : by === key ? "" : `${key} up`;
  return el("th", { scope: "col", class: kind, title, "aria-sort": by === key ? (way === 1 ? "ascending" : "descending") : null },
    el("button", { type: "button", class: "plain", onclick: () => { view.set({ sort: next }); draw(); find(`.configs th[data-key="${CSS.escape(key)}"] button`)?.focus(); } }, el("bdi", {}, label)));
}

function rowsOf(config) {
  const key = keyOf(config);
  const isOpen = opened().has(key);
  const toggle = () => {
    const open = opened();
    if (!open.delete(key)) open.add(key);
    view.set({ open: [...open] });
    draw();
    [...document.querySelectorAll(".configs tr.config")].find((row) => row.dataset.key === key)?.querySelector("button")?.focus();
  };
  const row = el("tr", { class: "config", "data-key": key },
    el("td", { class: "label" }, el("button", { type: "button", class: "plain", "aria-expanded": String(isOpen), "aria-label": `runs of ${key}`, onclick: toggle }, isOpen ? "▾" : "▸")),
    data.settings.map((setting) => el("td", { class: "label" }, el("bdi", {}, config.settings[setting.name]?.text ?? "–"))),
    el("td", { title: Object.entries(config.states).map(([state, n]) => `${n} ${state}`).join(", ") }, config.n === config.of ? String(config.n) : `${config.n}/${config.of}`),
    data.metrics.map((metric) => el("td", {}, config.values[metric.name]?.text ?? "–")));
  return isOpen ? [row, ...config.runs.map(runRow)] : [row];
}

const runRow = (run) => el("tr", { class: "run" }, el("td"),
  el("td", { class: "label", colspan: Math.max(1, data.settings.length) }, el("a", { href: `/run/${encodeURIComponent(run.id)}`, class: "mono" }, run.id.slice(0, 12)), ` seed ${run.seed} `,
    el("span", { class: "state", "data-state": run.status, title: run.cause }, `${run.status}, step ${number(run.step)}`)),
  el("td"), data.metrics.map((metric) => el("td", {}, run.values[metric.name] ?? "–")));

function draw() {
  const wanted = view.get("find").trim().toLowerCase().split(/\s+/).filter(Boolean);
  const textOf = (config) => `${keyOf(config)} ${config.runs.map((run) => `${run.id} ${run.status}`).join(" ")}`.toLowerCase();
  const found = sorted(data.configs.filter((config) => wanted.every((word) => textOf(config).includes(word))));
  const shown = found.slice(0, MAX_ROWS);
  const heads = [el("th", {}, el("span", { class: "unseen" }, "open")), ...data.settings.map((setting) => headOf(setting.name, setting.label, setting.name, "label")), headOf("n", "n", "runs in the means", ""),
    ...data.metrics.map((metric) => headOf(metric.name, metric.label, metric.meaning, ""))];
  heads.slice(1).forEach((head, at) => { head.dataset.key = [...data.settings.map((setting) => setting.name), "n", ...data.metrics.map((metric) => metric.name)][at]; });
  find(".configs").replaceChildren(el("caption", { class: "unseen" }, "Configs: mean ± std over seeds"), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, shown.flatMap(rowsOf)));
  find("#count").textContent = `${number(found.length)} of ${number(data.configs.length)} configs${found.length > shown.length ? `; the first ${MAX_ROWS} are shown` : ""}`;
}

/** Shows the configs sent by the server. */
export function showConfigs(table) {
  data = table;
  draw();
}

const search = find("#find");
search.value = view.get("find");
search.addEventListener("input", () => { view.set({ find: search.value }); if (data) draw(); });
addEventListener("popstate", () => { search.value = view.get("find"); if (data) draw(); });
