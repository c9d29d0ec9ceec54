// Shared by the model pages: choosing a run and a checkpoint, token elements, streamed responses.

import { readResponse, connectionError, el, get, number, notify, view } from "/static/page.js";

// ---- token labels ----

const MAX_URL_TEXT = 8000; // characters of a text in the URL
const VISIBLE_CHARS = { " ": "·", "\n": "¶", "\t": "→", "\r": "¤" };

/** A token's text with visible whitespace, using the same characters as the axes of maps. */
export const visible = (text) => (text.trim() ? text.trim() : [...text].map((char) => VISIBLE_CHARS[char] ?? char).join("")) || "…";

/** A fraction as a percentage. */
export function percent(share) {
  if (share < 0.001) return share ? "< 0.1 %" : "0 %";
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** A fraction as a bar. */
export const bar = (share) => el("span", { class: "share-bar", "aria-hidden": "true" }, el("i", { style: { width: `${100 * share}%` } }));

/** The text if it fits in the URL, else empty: servers limit the length of URLs. */
export const short = (text) => (encodeURIComponent(text).length <= MAX_URL_TEXT ? text : "");

// ---- choosing a model ----

let listed;
const runs = () => (listed ??= get("/api/models"));

/**
 * A selector of a run and one of its checkpoints, held in the URL as PREFIXrun and PREFIXstep.
 * `changed(about, step)` is called when either changes; about is the response of /api/models/RUN.
 */
export async function chooser(prefix, title, changed) {
  const run = el("select", {});
  const slider = el("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": `${title}: checkpoint` });
  const shown = el("output", { class: "step" });
  const place = el("div", { class: "chooser" },
    el("label", { class: "field" }, title, run), el("label", { class: "field" }, "checkpoint", slider), shown);
  const { studies, notice, failure } = await runs().catch((error) => ({ studies: [], failure: error.message }));
  if (!studies.length) return { nothing: noModels(failure) };
  if (notice) notify(notice);
  for (const { study, runs: some } of studies) {
    run.append(el("optgroup", { label: study }, some.map(({ id, name }) => el("option", { value: id }, `${study}: ${name}`))));
  }
  let about = null;

  const stepOf = () => about.steps[Number(slider.value)];
  function show() {
    const step = stepOf();
    const best = step === about.best ? ", the best" : "";
    shown.textContent = `step ${number(step)} (${Number(slider.value) + 1} of ${about.steps.length}${best})`;
    slider.setAttribute("aria-valuetext", shown.textContent);
  }
  function update() {
    show();
    const isLast = Number(slider.value) === about.steps.length - 1;
    view.set({ [`${prefix}run`]: about.id, [`${prefix}step`]: isLast ? "" : stepOf() });
    changed(about, stepOf());
  }
  async function choose(id, wanted = "") {
    about = await get(`/api/models/${encodeURIComponent(id)}`);
    if (!about.steps.length) throw new Error(`run ${about.id} (${about.status}) has no weights here; choose another`);
    if (![...run.options].some((option) => option.value === about.id)) {
      run.prepend(el("option", { value: about.id }, `seed ${about.seed}, ${about.id.slice(0, 8)}`));
    }
    run.value = about.id;
    const named = wanted === "best" ? about.best : Number(wanted);
    const at = wanted === "" || wanted === "last" ? -1 : about.steps.indexOf(named);
    if (at < 0 && wanted !== "" && wanted !== "last") notify(`step ${wanted} has no checkpoint; showing the last one`);
    slider.max = about.steps.length - 1;
    slider.value = at < 0 ? about.steps.length - 1 : at;
    slider.disabled = about.steps.length < 2;
    update();
  }
  const failed = (error) => notify(error.message, "error");
  run.addEventListener("change", () => choose(run.value).catch(failed));
  slider.addEventListener("input", update);
  return {
    place,
    start: () => choose(view.get(`${prefix}run`) || run.value, view.get(`${prefix}step`)).catch(failed),
    get about() { return about; },
    get step() { return about && stepOf(); },
  };
}

/** The message when there is no model to query. */
const noModels = (failure) => el("div", { class: "empty" },
  el("p", {}, failure ?? "No run in this home has started, so there is no model to query."),
  el("p", {}, el("a", { href: "/start" }, "Start a study"), ", or train one on the command line: ", el("code", {}, "seedbed run quickstart")));

// ---- token elements ----

/** A token element; a token without text is shown by its name, which is not copied with the text. */
export function tokenElement(text, name, attributes) {
  const shown = text === "" ? el("i", { class: "stand-in" }, visible(name)) : text;
  return el("span", {
    role: "button", tabindex: -1, class: text.includes("\n") ? "token line" : "token", ...attributes,
  }, shown);
}

/**
 * Roving tabindex: arrow keys move between the children of an element, one of which is in the tab order.
 * In right-to-left text the left arrow moves forward. `columns` makes the up and down keys move between rows.
 */
export function roving(place, { columns = () => 1, moved = () => {} } = {}) {
  const items = () => [...place.querySelectorAll("[tabindex]")];
  const go = (item) => {
    for (const one of items()) one.tabIndex = one === item ? 0 : -1;
    item.focus();
    moved(item);
  };
  place.addEventListener("keydown", (event) => {
    const all = items(), at = all.indexOf(event.target.closest("[tabindex]"));
    if (at < 0) return;
    const forward = getComputedStyle(place).direction === "rtl" ? -1 : 1;
    const by = { ArrowRight: forward, ArrowLeft: -forward, ArrowDown: columns(), ArrowUp: -columns() }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : at + (by ?? NaN);
    if (Number.isNaN(to)) return;
    event.preventDefault();
    if (all[to]) go(all[to]);
  });
}

// ---- streamed responses ----

/** Posts a request and calls `onValue` with each streamed value; ends with the response or the abort signal. */
export async function follow(url, body, onValue, signal) {
  const response = await fetch(url, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal,
  }).catch((error) => { throw error.name === "AbortError" ? error : connectionError(); });
  if (!response.ok) await readResponse(response);
  let rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const [, name, data] = event.match(/^event: (\w+)\ndata: (.*)$/s);
      if (name === "failure") throw new Error(JSON.parse(data));
      if (name === "value") onValue(JSON.parse(data));
    }
  }
}
