// The table of runs, one row per config or per run: sorted, searched, filtered, with chosen columns and ticked rows.
// The URL keeps all of it. Ticked rows go on to Compare, Inside and Start, or stay alone in the view, or leave it.

import { el, find, notify, number, view } from "/static/page.js";
import { csvButton } from "/static/tables.js";

const MAX_ROWS = 400; // the rest is found by searching
const MAX_GROUPS = 12; // that Compare takes
const RUN_COLUMNS = [{ name: "seed", label: "seed" }, { name: "status", label: "status" }, { name: "step", label: "step" }];
let data = null;
let owner = null; // { study, change } of the page

const chosen = (name) => new Set(view.all(name));
const byRun = () => view.get("rows") === "runs";
const keyOf = (config) => Object.entries(config.settings).map(([name, value]) => `${name}=${value.text}`).join(" ") || "all";

/** The rows of the table: configs, or all their runs with the settings of their config. */
function allRows() {
  if (!byRun()) return data.configs.map((config) => ({ config, key: keyOf(config), runs: config.runs }));
  return data.configs.flatMap((config) => config.runs.map((run) => ({ config, run, key: run.id, runs: [run] })));
}

/** The columns, those of the settings and the chosen ones of the others. */
function columns() {
  const own = byRun() ? RUN_COLUMNS : [{ name: "n", label: "n", meaning: "runs in the means" }];
  const all = [...data.settings.map((one) => ({ ...one, meaning: one.name, kind: "label" })), ...own, ...data.metrics];
  const wanted = chosen("column_shown"), hidden = chosen("column_hidden");
  return all.map((one) => ({ ...one, shown: wanted.has(one.name) || (!one.folded && !hidden.has(one.name)) }));
}

function textOf({ config, run }, name) {
  if (config.settings[name]) return config.settings[name].text;
  if (name === "n") return config.n === config.of ? String(config.n) : `${config.n}/${config.of}`;
  if (run) return name in run && name !== "values" ? (name === "step" ? number(run.step) : String(run[name])) : run.values[name] ?? "–";
  return config.values[name]?.text ?? "–";
}

function sortValue(row, name) {
  if (row.config.settings[name]) return row.config.settings[name].value;
  if (row.run) return name === "status" ? row.run.status : name in row.run ? row.run[name] : parseFloat(row.run.values[name]);
  return name === "n" ? row.config.n : row.config.values[name]?.mean;
}

function sorting() {
  const [, name, way] = view.get("sort").match(/^(.*) (up|down)$/) ?? [];
  return { name: name ?? "", way: way === "down" ? -1 : 1 };
}

function sorted(rows) {
  const { name, way } = sorting();
  if (!name) return rows;
  const known = (value) => value !== undefined && value !== null && value !== "NaN" && !Number.isNaN(value);
  return [...rows].sort((one, other) => {
    const [a, b] = [sortValue(one, name), sortValue(other, name)];
    if (!known(a) || !known(b)) return Number(known(b)) - Number(known(a));
    return way * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  });
}

// ---- drawing ----

function headOf({ name, label, meaning, kind }) {
  const { name: by, way } = sorting();
  const next = by === name && way === 1 ? `${name} down` : by === name ? "" : `${name} up`;
  return el("th", { scope: "col", class: kind, title: meaning, "data-key": name, "aria-sort": by === name ? (way === 1 ? "ascending" : "descending") : null },
    el("button", { type: "button", class: "plain", onclick: () => { view.set({ sort: next }); draw(); find(`.configs th[data-key="${CSS.escape(name)}"] button`)?.focus(); } }, el("bdi", {}, label)));
}

function tickOf(row) {
  return el("input", {
    type: "checkbox", class: "tick", checked: chosen("tick").has(row.key), "aria-label": `tick ${row.run ? `${keyOf(row.config)} seed ${row.run.seed}` : row.key}`,
    onchange: (event) => {
      const ticked = chosen("tick");
      if (event.target.checked) ticked.add(row.key); else ticked.delete(row.key);
      view.set({ tick: [...ticked] });
      showActions();
    },
  });
}

const stateOf = (run) => el("span", { class: "state", "data-state": run.status, title: run.cause }, run.status);
const linkOf = (run, text) => el("a", { href: `/run/${encodeURIComponent(run.id)}` }, text);

function cellOf(row, { name, kind }) {
  if (row.run && name === "seed") return el("td", {}, linkOf(row.run, String(row.run.seed)));
  if (row.run && name === "status") return el("td", {}, stateOf(row.run));
  const states = name === "n" ? Object.entries(row.config.states).map(([state, n]) => `${n} ${state}`).join(", ") : null;
  return el("td", { class: kind, title: states }, el("bdi", {}, textOf(row, name)));
}

function rowsOf(row, shown) {
  const isOpen = chosen("open").has(row.key);
  const toggle = () => {
    const open = chosen("open");
    if (!open.delete(row.key)) open.add(row.key);
    view.set({ open: [...open] });
    draw();
    [...document.querySelectorAll(".configs tr.config")].find((one) => one.dataset.key === row.key)?.querySelector("button")?.focus();
  };
  const button = !row.run && el("button", { type: "button", class: "plain", "aria-expanded": String(isOpen), "aria-label": `runs of ${row.key}`, onclick: toggle }, isOpen ? "▾" : "▸");
  const made = el("tr", { class: row.run ? "run" : "config", "data-key": row.key }, el("td", { class: "label" }, tickOf(row), button), shown.map((one) => cellOf(row, one)));
  return isOpen && !row.run ? [made, ...row.config.runs.map((run) => runRow(run, shown))] : [made];
}

/** A run below its config: its link and state under the settings, its values under those of the config. */
function runRow(run, shown) {
  const settings = shown.filter((one) => one.kind === "label").length;
  return el("tr", { class: "run" }, el("td"),
    el("td", { class: "label", colspan: Math.max(1, settings) }, linkOf(run, `seed ${run.seed}`), " ", stateOf(run), ` at step ${number(run.step)}`),
    shown.slice(settings).slice(settings ? 0 : 1).map(({ name }) => el("td", {}, name === "n" ? "" : run.values[name] ?? "–")));
}

function draw() {
  const wanted = view.get("find").trim().toLowerCase().split(/\s+/).filter(Boolean);
  const status = view.get("status");
  const searched = ({ config, runs }) => `${keyOf(config)} ${runs.map((run) => `${run.id} ${run.status} seed=${run.seed}`).join(" ")}`.toLowerCase();
  const rows = allRows();
  const found = sorted(rows.filter((row) => (!status || row.runs.some((run) => run.status === status)) && wanted.every((word) => searched(row).includes(word))));
  const shown = columns().filter((one) => one.shown);
  find(".configs").replaceChildren(el("caption", { class: "unseen" }, byRun() ? "Runs: best values" : "Configs: mean ± std over seeds"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "unseen" }, "tick and open")), shown.map(headOf))),
    el("tbody", {}, found.slice(0, MAX_ROWS).flatMap((row) => rowsOf(row, shown))));
  const kind = byRun() ? "runs" : "configs";
  find("#count").textContent = `${number(found.length)} of ${number(rows.length)} ${kind}${found.length > MAX_ROWS ? `; the first ${MAX_ROWS} are shown` : ""}`;
  find("#csv").replaceChildren(csvButton(`${owner.study} ${kind}`, () => [shown.map((one) => one.name), ...found.map((row) => shown.map(({ name }) => textOf(row, name)))]));
  showActions();
}

function showColumns() {
  const box = (one) => el("label", { class: "chip", title: one.meaning }, el("input", {
    type: "checkbox", checked: one.shown, onchange: (event) => {
      const [on, off] = [chosen("column_shown"), chosen("column_hidden")];
      on.delete(one.name);
      off.delete(one.name);
      if (event.target.checked && one.folded) on.add(one.name);
      if (!event.target.checked && !one.folded) off.add(one.name);
      view.set({ column_shown: [...on], column_hidden: [...off] });
      draw();
    },
  }), el("bdi", {}, one.label));
  find("#columns .chips").replaceChildren(...columns().map(box));
}

// ---- ticked rows ----

const ticked = () => allRows().filter((row) => chosen("tick").has(row.key));
const groupOf = (row) => (row.run ? row.run.id : [owner.study, ...row.config.filters].join(" "));

function showActions() {
  const rows = ticked();
  const ids = rows.flatMap((row) => row.runs.map((run) => run.id));
  const go = (path, pairs) => { location.href = `${path}?${new URLSearchParams(pairs)}`; };
  const narrow = (filter) => owner.change({ only: [...view.all("only"), filter], tick: "" });
  const actions = [
    ["Compare", rows.length > 1, () => (rows.length > MAX_GROUPS ? notify(`${rows.length} rows are ticked; at most ${MAX_GROUPS} are compared at a time`, "error")
      : go("/compare", rows.map((row, at) => ["abcdefghijkl"[at], groupOf(row)])))],
    ["Show only these", rows.length > 0, () => narrow(`id=${ids.join(",")}`)],
    ["Hide", rows.length > 0 && rows.length < allRows().length, () => narrow(`id!=${ids.join(",")}`)],
    ["Look inside", rows.length > 0 && rows.length < 3, () => go("/inside", rows.map((row, at) => [at ? "other_run" : "run", row.runs[0].id]))],
    ["Start again with changes", rows.length === 1, () => go("/start", [["study", owner.study], ["source", "stored"], ...rows[0].config.filters.map((text) => ["override", text])])],
  ];
  find("#ticked").replaceChildren(el("span", { class: "faint" }, rows.length ? `${rows.length} ticked:` : "Tick rows to compare, hide or open them."),
    ...(rows.length ? actions.map(([text, able, onclick]) => el("button", { type: "button", disabled: !able, onclick }, text)) : []));
}

/** Shows the configs sent by the server. */
export function showConfigs(table, page) {
  [data, owner] = [table, page];
  const states = new Set(data.configs.flatMap((config) => config.runs.map((run) => run.status)));
  find("#status-filter").replaceChildren(el("option", { value: "" }, "any"), ...[...states].map((state) => el("option", {}, state)));
  restore();
  showColumns();
  draw();
}

function restore() {
  find("#find").value = view.get("find");
  find("#rows").value = view.get("rows", "configs");
  find("#status-filter").value = view.get("status");
}

find("#find").addEventListener("input", (event) => { view.set({ find: event.target.value }); if (data) draw(); });
find("#rows").addEventListener("change", (event) => {
  view.set({ rows: event.target.value === "runs" ? "runs" : "", tick: "" });
  showColumns();
  draw();
});
find("#status-filter").addEventListener("change", (event) => { view.set({ status: event.target.value }); draw(); });
addEventListener("popstate", () => { restore(); if (data) { showColumns(); draw(); } });
