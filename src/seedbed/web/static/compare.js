// Comparison of groups of runs. The URL holds them: a, b, c … are groups, or one group and `by`, a setting to split it.

import { el, find, get, view, drawChart, number, sentenceOf } from "/static/page.js";
import { downloads, chips, CHART, TABLE } from "/static/widgets.js";
import { numbersOf } from "/static/figure.js";
import { tableOf } from "/static/tables.js";

const LETTERS = [..."abcdefghijkl"];
const place = find("#found");
const charts = new Map(); // name → figure
let choices = null; // of the selected study
let turn = 0;

const groups = () => LETTERS.map((letter) => view.get(letter)).filter(Boolean);

/** Puts groups into the URL and compares them. */
function choose(wanted, by = "") {
  const kept = [...new Set(wanted)].slice(0, LETTERS.length);
  view.set({ ...Object.fromEntries(LETTERS.map((letter, at) => [letter, kept[at] ?? ""])), by, confounded: "" }, { push: true });
  showChoice();
  compare();
}

// ---- choosing ----

async function readStudies() {
  const { studies } = await get("/api/studies");
  const picker = find("#study");
  picker.replaceChildren(...studies.map((study) => el("option", { value: study.name }, study.name)));
  const named = studies.map((study) => study.name).filter((name) => groups().some((group) => group === name || group.startsWith(`${name} `)));
  if (named.length) picker.value = named.sort((one, other) => other.length - one.length)[0];
  picker.addEventListener("change", () => readChoices(picker.value));
  if (studies.length) await readChoices(picker.value);
}

async function readChoices(study) {
  choices = null;
  find("#by").replaceChildren(el("option", { value: "" }, "–")); // the previous study's settings are gone
  find("#configs").replaceChildren();
  const found = await get(`/api/compare/study?name=${encodeURIComponent(study)}`);
  if (find("#study").value !== study) return;
  choices = found;
  find("#by").append(...choices.axes.map((name) => el("option", { value: name }, name)));
  showChoice();
}

/** The study's configs, checked if they are groups; and the groups themselves. */
function showChoice() {
  const chosen = groups();
  const by = view.get("by");
  find("#groups").replaceChildren(...chosen.map((group, at) => el("li", {},
    el("span", { class: "letter", "aria-hidden": "true" }, LETTERS[at]), el("bdi", {}, by ? `${group}, split by ${by}` : group),
    el("button", { type: "button", "aria-label": `remove ${group}`, onclick: () => choose(chosen.filter((one) => one !== group)) }, "×"))));
  if (!choices) return;
  find("#by").value = by && chosen[0] === choices.study ? by : "";
  const names = new Map(choices.configs.map((config) => [config.label, `${choices.study} ${config.filters}`]));
  const checked = by ? [] : [...names].filter(([, group]) => chosen.includes(group)).map(([label]) => label);
  const others = chosen.filter((group) => ![...names.values()].includes(group));
  find("#configs").replaceChildren(
    names.size ? el("div", { class: "configs" }, chips(`configs of ${choices.study}`, [...names.keys()], checked,
      (labels) => choose([...(by ? [] : others), ...labels.map((label) => names.get(label))]))) : "",
    choices.n_configs > names.size ? el("p", { class: "notes" }, names.size
      ? `${number(names.size)} of ${number(choices.n_configs)} configs are listed; select others by filters in the URL.`
      : "This study has one config: compare it with another study, or compare two of its runs.") : "");
}

find("#by")?.addEventListener("change", (event) => choose(event.target.value ? [choices.study] : [], event.target.value));
find("#whole")?.addEventListener("click", () => choices && choose([...(view.get("by") ? [] : groups()), choices.study]));
const addRun = () => {
  const id = find("#run").value.trim();
  if (id) choose([...(view.get("by") ? [] : groups()), id]);
  find("#run").value = "";
};
find("#addrun")?.addEventListener("click", addRun);
find("#run")?.addEventListener("keydown", (event) => { if (event.key === "Enter") addRun(); });
for (const name of ["metric", "value"]) {
  find(`#${name}`)?.addEventListener("change", (event) => { view.set({ [name]: event.target.value }, { push: true }); compare(); });
}

// ---- comparing ----

async function compare() {
  const mine = ++turn;
  const chosen = groups();
  if (chosen.length < 2 && !view.get("by")) {
    charts.clear();
    place.replaceChildren(el("div", { class: "empty" }, el("p", {}, chosen.length
      ? "One group is chosen: choose another to compare it with." : "Choose two or more configs, or a setting to split a study by.")));
    place.dataset.ready = "true";
    return;
  }
  place.classList.add("busy");
  let found;
  try {
    found = await get(`/api/compare${view.query()}`);
  } catch (error) {
    if (mine !== turn) return;
    charts.clear();
    place.replaceChildren(el("p", { class: "warning", dir: "auto" }, error.message));
    return;
  } finally {
    if (mine === turn) { place.classList.remove("busy"); place.dataset.ready = "true"; }
  }
  if (mine === turn) show(found);
}

function show(found) {
  find("#metric").replaceChildren(...[...new Set([found.metric, ...found.metrics])].map((name) => el("option", { value: name }, name)));
  find("#metric").value = found.metric;
  find("#value").value = found.value;
  const query = view.query();
  const fresh = charts.size === 0;
  if (fresh) for (const name of ["differences", "curves", "parallel"]) charts.set(name, figure(name));
  const [means, pairs] = found.tables;
  place.replaceChildren(
    el("p", { class: "verdict", dir: "auto" }, found.sentence),
    ...(found.verdict === "no verdict" ? [el("button", { type: "button", onclick: () => { view.set({ confounded: "true" }, { push: true }); compare(); } }, "Give a verdict nevertheless")] : []),
    ...found.notes.map((note) => el("p", { class: "notes" }, sentenceOf(note))),
    charts.get("differences").frame,
    ...(pairs ? [tableOf(pairs), downloads("/download/compare/pairs", query, TABLE), tableOf(means), downloads("/download/compare/means", query, TABLE)] : []),
    charts.get("curves").frame, charts.get("parallel").frame,
    el("p", { class: "notes" }, "The same in a terminal: ", el("code", {}, found.command)));
  for (const [name, one] of charts) one.show(found.figures[name], query);
}

/** A figure element that stays in place while its chart changes. */
function figure(name) {
  const chart = el("div", { class: "chart", role: "img", tabindex: 0 });
  const caption = el("figcaption", {});
  const links = el("div", {});
  const numbers = el("details", { class: "noprint" });
  const frame = el("figure", { "data-figure": name }, chart, caption, links, numbers);
  let drawn = null;
  const fill = () => numbers.open && drawn && numbers.replaceChildren(numbers.firstElementChild, numbersOf(drawn));
  numbers.addEventListener("toggle", fill);
  const show = (rendered, query) => {
    chart.setAttribute("aria-label", rendered.title);
    chart.hidden = !rendered.spec;
    caption.textContent = rendered.notes.join(" ");
    links.replaceChildren(rendered.spec ? downloads(`/download/compare/${name}`, query, CHART) : "");
    numbers.hidden = !rendered.spec;
    numbers.replaceChildren(el("summary", {}, `The numbers of “${rendered.title}”`));
    drawn = rendered.spec;
    fill();
    if (rendered.spec) drawChart(chart, rendered.spec);
  };
  return { frame, show };
}

if (place) {
  find("#value").value = view.get("value", "best");
  addEventListener("popstate", () => { showChoice(); compare(); });
  await readStudies();
  await compare();
}
