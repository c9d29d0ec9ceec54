// One run: its curves grow while it trains; a slider goes through what it wrote.

import { el, find, get, number, say, stream, view } from "/static/page.js";
import { Figure } from "/static/figure.js";
import { tableOf } from "/static/tables.js";

const run = find("#run").dataset.run;
const address = `/api/run/${encodeURIComponent(run)}`;
const figure = new Figure(1, `curves of run ${run}`, () => get(`${address}/figure`), null);
find("#curves").append(figure.element);

const inBytes = (n) => (n < 1e6 ? `${number(n / 1e3, 3)} kB` : `${number(n / 1e6, 3)} MB`);
const simple = (columns, rows, labels = 1) => tableOf({ columns, rows, labels, best: [], notes: [] });
const studyAt = (name) => `/study/${name.split("/").map(encodeURIComponent).join("/")}`;

function show(told) {
  find("#studies").replaceChildren("of ", ...told.studies.flatMap((name, place) => [place ? ", " : "", el("a", { href: studyAt(name) }, el("bdi", {}, name))]));
  find("#state").replaceChildren(el("span", { class: "state", "data-state": told.status }, told.status),
    ` at step ${number(told.step)}${told.asked ? ` of ${number(told.asked)}` : ""} · seed ${told.seed} · ${number(told.parameters.total)} parameters (${number(told.parameters.non_embedding)} without tables)`);
  find("#cause").textContent = told.cause ?? "";
  find("#cause").hidden = !told.cause;
  find("#readings").replaceChildren(tableOf({ ...told.readings, title: "", notes: [] }));
  showTime(told.pack);
  showKept(told);
  const differing = told.settings.filter((dial) => dial.differs);
  const rowsOf = (dials) => dials.map((dial) => [dial.name, dial.value]);
  find("#settings").replaceChildren(differing.length ? simple(["dial, not as usual", "value"], rowsOf(differing)) : el("p", { class: "faint" }, "Every dial is as usual."),
    el("details", {}, el("summary", {}, `All ${told.settings.length} dials`), simple(["dial", "value"], rowsOf(told.settings))));
}

function showTime(pack) {
  if (!pack) { find("#time").replaceChildren(el("p", { class: "faint" }, "It has not begun.")); return; }
  const spent = Object.entries(pack.seconds).map(([what, seconds]) => [what, `${number(seconds, 4)} s`, `${number(seconds / pack.runs, 3)} s`]);
  const where = `${pack.runs} run${pack.runs === 1 ? "" : "s"} trained side by side on ${pack.device}, ${pack.threads} thread${pack.threads === 1 ? "" : "s"}, engine ${pack.engine}.`;
  const facts = pack.environment.flatMap((one) => Object.entries(one).map(([name, value]) => [name, String(value)]));
  find("#time").replaceChildren(el("p", {}, where, pack.peak ? ` Memory at most ${inBytes(pack.peak)}.` : ""),
    spent.length ? simple(["spent on", "whole pack", "this run's share"], spent) : el("p", { class: "faint" }, "No time is recorded yet."),
    el("details", {}, el("summary", {}, "Versions and hardware"), simple(["what", "value"], facts, 2)));
}

function showKept(told) {
  if (!told.checkpoints.length) { find("#kept").replaceChildren(el("p", { class: "faint" }, "No weights are kept yet.")); return; }
  const link = (view_, step, text) => el("a", { href: `/${view_}?run=${encodeURIComponent(run)}&step=${step}` }, text);
  find("#kept").replaceChildren(el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ["step", "size", "", ""].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, told.checkpoints.map((one) => el("tr", {}, el("td", {}, `${number(one.step)}${one.step === told.best ? " (best)" : ""}`), el("td", {}, inBytes(one.bytes)),
      el("td", {}, link("inside", one.step, "look inside")), el("td", {}, link("playground", one.step, "play")))))))); 
}

// ---- what it wrote ----

const when = find("#when");
let steps = [];
let byStep = new Map();

function showTexts() {
  const step = steps[Number(when.value)];
  find("#at").textContent = step === undefined ? "" : number(step);
  when.setAttribute("aria-valuetext", step === undefined ? "" : `step ${step}`);
  find("#texts").replaceChildren(...(byStep.get(step) ?? []).map((one) => el("div", {},
    el("div", { class: "written", dir: "auto", tabindex: 0, role: "group", "aria-label": `text ${one.number + 1} at step ${step}` }, one.prompt && el("span", { class: "prompt" }, one.prompt),
      one.pieces.map(([text, copied]) => (copied ? el("mark", { title: "stands verbatim in the training text" }, text) : text))),
    one.bits !== null && el("p", { class: "faint" }, `${number(one.bits, 3)} bits a token by the model's own measure`))));
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
  find("#notes").replaceChildren(...(steps.length ? notes : ["It wrote nothing: its study asks for no samples (train.sample_every)."]).map((note) => el("p", { class: "notes", dir: "auto" }, note)));
  when.disabled = steps.length < 2;
  showTexts();
}

when.addEventListener("input", () => { view.set({ step: steps[Number(when.value)] }); showTexts(); });

// ---- heads, by the model itself ----

find("#ask").addEventListener("click", async () => {
  const place = find("#found");
  place.replaceChildren(el("p", { class: "faint", role: "status" }, "reading …"));
  try {
    const { step, tables } = await get(`/api/heads/${encodeURIComponent(run)}`);
    place.replaceChildren(el("p", { class: "faint" }, `At step ${number(step)}.`), ...tables.map((table) => tableOf({ ...table, labels: table.n_labels, best: [] })));
  } catch (error) {
    place.replaceChildren(el("p", { class: "warning" }, error.message));
  }
});

// ---- reading, and reading on while it trains ----

async function read() {
  try {
    const [told] = await Promise.all([get(address), readSamples()]);
    show(told);
    if (find("#body").hidden) await figure.read(); else await figure.refresh();
    find("#body").hidden = false; // all at once, so that nothing moves what is being read
    find("#run").dataset.ready = "true";
  } catch (error) { say(error.message, "error"); }
}

let last = null;
let busy = false;
await read();
stream(`/api/live/run/${encodeURIComponent(run)}`, {
  news: async (standing) => {
    const now = `${standing.status} ${standing.step}`;
    const first = last === null;
    if (now === last || busy) return;
    last = now;
    if (first) return;
    busy = true;
    await read();
    busy = false;
  },
  gone: () => say("this run is not in the store any more; what is shown is what it was", "error"),
  trouble: (sentence) => say(sentence, "error"),
});
