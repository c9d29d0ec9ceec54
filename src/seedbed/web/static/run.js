// One run: live curves while it trains, and its samples by step.

import { el, find, get, number, notify, stream, view } from "/static/page.js";
import { Figure } from "/static/figure.js";
import { tableOf } from "/static/tables.js";

const run = find("#run").dataset.run;
const address = `/api/run/${encodeURIComponent(run)}`;
const figure = new Figure(1, `curves of run ${run}`, () => get(`${address}/figure`), (ending) => {
  const shown = [["theme", document.documentElement.dataset.theme], ...view.all("hide").map((one) => ["hide", one])];
  return `/download/run/${encodeURIComponent(run)}/figure/1.${ending}?${new URLSearchParams(shown)}`;
});
find("#curves").append(figure.element);

const MAX_CHECKPOINT_ROWS = 8; // of a table that is not folded
const formatBytes = (n) => (n < 1e6 ? `${number(n / 1e3, 3)} kB` : `${number(n / 1e6, 3)} MB`);
const simple = (columns, rows, labels = 1, csv = "") => tableOf({ columns, rows, labels, best: [], notes: [], csv: csv && `run ${run} ${csv}` });
const studyAt = (name) => `/study/${name.split("/").map(encodeURIComponent).join("/")}`;

function show(info) {
  find("#studies").replaceChildren("of ", ...info.studies.flatMap((name, place) => [place ? ", " : "", el("a", { href: studyAt(name) }, el("bdi", {}, name))]));
  find("#state").replaceChildren(el("span", { class: "state", "data-state": info.status }, info.status),
    ` at step ${number(info.step)}${info.total_steps ? ` of ${number(info.total_steps)}` : ""} · ${number(info.parameters.total)} parameters (${number(info.parameters.non_embedding)} without embeddings) · run `, el("span", { class: "mono" }, info.id));
  showSeeds(info.seeds);
  find("#cause").textContent = info.cause ?? "";
  find("#cause").hidden = !info.cause;
  find("#metrics").replaceChildren(tableOf({ ...info.metrics, title: "", notes: [], csv: `run ${run} metrics` }));
  showTime(info.pack);
  showCheckpoints(info);
  const differing = info.settings.filter((setting) => setting.differs);
  const rowsOf = (settings) => settings.map((setting) => [setting.name, setting.value]);
  find("#settings").replaceChildren(differing.length ? simple(["setting (not default)", "value"], rowsOf(differing), 2) : el("p", { class: "faint" }, "Every setting has its default value."),
    el("details", {}, el("summary", {}, `All ${info.settings.length} settings`), simple(["setting", "value"], rowsOf(info.settings), 2, "settings")));
}

/** Links to the runs of the seeds before and after this one, of the same config. */
function showSeeds(seeds) {
  const at = seeds.findIndex(([, id]) => id === run);
  const link = (place, text, rel) => seeds[place] && el("a", { class: "button", rel, href: `/run/${encodeURIComponent(seeds[place][1])}` }, text(seeds[place][0]));
  find("#seeds").replaceChildren(...[link(at - 1, (seed) => `‹ seed ${seed}`, "prev"), link(at + 1, (seed) => `seed ${seed} ›`, "next")].filter(Boolean));
}

function showTime(pack) {
  if (!pack) { find("#time").replaceChildren(el("p", { class: "faint" }, "It has not started.")); return; }
  const spent = Object.entries(pack.seconds).map(([what, seconds]) => [what, `${number(seconds, 4)} s`, `${number(seconds / pack.runs, 3)} s`]);
  const where = `${pack.runs} run${pack.runs === 1 ? "" : "s"} trained side by side on ${pack.device}, ${pack.threads} thread${pack.threads === 1 ? "" : "s"}, ${pack.mode} mode.`;
  const versions = pack.environment.flatMap((one) => Object.entries(one).map(([name, value]) => [name, String(value)]));
  find("#time").replaceChildren(el("p", {}, where, pack.peak ? ` Peak memory ${formatBytes(pack.peak)}.` : ""),
    spent.length ? simple(["time for", "whole pack", "this run's share"], spent) : el("p", { class: "faint" }, "No timings yet."),
    el("details", {}, el("summary", {}, "Versions and hardware"), simple(["name", "value"], versions, 2)));
}

function showCheckpoints(info) {
  if (!info.checkpoints.length) { find("#checkpoints").replaceChildren(el("p", { class: "faint" }, "No checkpoints yet.")); return; }
  const link = (view_, step, text) => el("a", { href: `/${view_}?run=${encodeURIComponent(run)}&step=${step}` }, text);
  const table = el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ["step", "size"].map((name) => el("th", { scope: "col" }, name)), el("td"), el("td"))),
    el("tbody", {}, info.checkpoints.map((one) => el("tr", {}, el("td", {}, `${number(one.step)}${one.step === info.best ? " (best)" : ""}`), el("td", {}, formatBytes(one.bytes)),
      el("td", {}, link("inside", one.step, "look inside")), el("td", {}, link("playground", one.step, "playground")))))));
  const folded = info.checkpoints.length > MAX_CHECKPOINT_ROWS;
  const size = info.checkpoints.reduce((sum, one) => sum + one.bytes, 0);
  find("#checkpoints").replaceChildren(folded ? el("details", {}, el("summary", {}, `${number(info.checkpoints.length)} checkpoints, ${formatBytes(size)}`), table) : table);
}

// ---- samples ----

const when = find("#when");
let steps = [];
let byStep = new Map();

function showTexts() {
  const step = steps[Number(when.value)];
  find("#at").textContent = step === undefined ? "" : number(step);
  when.setAttribute("aria-valuetext", step === undefined ? "" : `step ${step}`);
  find("#texts").replaceChildren(...(byStep.get(step) ?? []).map((one) => el("div", {},
    el("div", { class: "written", dir: "auto", tabindex: 0, role: "group", "aria-label": `text ${one.number + 1} at step ${step}` }, one.prompt && el("span", { class: "prompt" }, one.prompt),
      one.pieces.map(([text, copied]) => (copied ? el("mark", { title: "copied verbatim from the training text" }, text) : text))),
    one.bits !== null && el("p", { class: "faint" }, `${number(one.bits, 3)} bits per token under the model`))));
}

async function readSamples() {
  if (find("#samples").hidden) return;
  const { samples, notes } = await get(`${address}/samples`);
  const wasLast = Number(when.value) === Math.max(0, steps.length - 1);
  byStep = new Map();
  for (const one of samples) byStep.set(one.step, [...(byStep.get(one.step) ?? []), one]);
  steps = [...byStep.keys()];
  when.max = Math.max(0, steps.length - 1);
  const wanted = steps.indexOf(Number(view.get("step", NaN)));
  if (wanted >= 0) when.value = wanted; else if (wasLast) when.value = when.max;
  find("#notes").replaceChildren(...(steps.length ? notes : ["No samples: the study sets no train.sample_every."]).map((note) => el("p", { class: "notes", dir: "auto" }, note)));
  when.disabled = steps.length < 2;
  showTexts();
}

when.addEventListener("input", () => { view.set({ step: steps[Number(when.value)] }); showTexts(); });

// ---- heads ----

find("#ask").addEventListener("click", async () => {
  const place = find("#found");
  place.replaceChildren(el("p", { class: "faint", role: "status" }, "computing …"));
  try {
    const { step, tables } = await get(`/api/heads/${encodeURIComponent(run)}`);
    place.replaceChildren(el("p", { class: "faint" }, `At step ${number(step)}.`), ...tables.map(tableOf));
  } catch (error) {
    place.replaceChildren(el("p", { class: "warning" }, error.message));
  }
});

// ---- loading, and live updates ----

async function read() {
  try {
    const [info] = await Promise.all([get(address), readSamples()]);
    show(info);
    const body = find("#body");
    if (body.hidden) {
      body.style.visibility = "hidden"; // has its width, and is shown all at once: no layout shift
      body.hidden = false;
      await figure.read();
      body.style.visibility = "";
    } else await figure.refresh();
    find("#run").dataset.ready = "true";
  } catch (error) { notify(error.message, "error"); }
}

let last = null;
let busy = false;
await read();
stream(`/api/live/run/${encodeURIComponent(run)}`, {
  update: async (progress) => {
    const now = `${progress.status} ${progress.step}`;
    const first = last === null;
    if (now === last || busy) return;
    last = now;
    if (first) return;
    busy = true;
    await read();
    busy = false;
  },
  removed: () => notify("this run was removed from the store; the page shows its last state", "error"),
  failure: (message) => notify(message, "error"),
});
