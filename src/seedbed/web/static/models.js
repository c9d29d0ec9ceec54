// What the views of models share: choosing a run and a kept step, tokens of a text as elements, answers that stream in.

import { answered, el, get, gone, number, say, view } from "/static/page.js";

// ---- names of tokens ----

const LONGEST = 8000; // signs of a text in the address
const SIGNS = { " ": "·", "\n": "¶", "\t": "→", "\r": "¤" };

/** A token's text so that it can be seen; the same signs as on the axes of maps. */
export const visible = (text) => (text.trim() ? text.trim() : [...text].map((sign) => SIGNS[sign] ?? sign).join("")) || "…";

/** A share for a reader. */
export function percent(share) {
  if (share < 0.001) return share ? "< 0.1 %" : "0 %";
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** A share as a length. */
export const bar = (share) => el("span", { class: "share-bar", "aria-hidden": "true" }, el("i", { style: { width: `${100 * share}%` } }));

/** A text as the address can hold it: a long one is left out, since servers read addresses of some length only. */
export const short = (text) => (encodeURIComponent(text).length <= LONGEST ? text : "");

// ---- choosing a model ----

let listed;
const runs = () => (listed ??= get("/api/models"));

/**
 * A run and one of its kept steps, held in the address as PREFIXrun and PREFIXstep.
 * `changed(about, step)` is called when either is another; about is what /api/models/RUN tells.
 */
export async function chooser(prefix, title, changed) {
  const run = el("select", {});
  const slider = el("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": `${title}: kept step` });
  const shown = el("output", { class: "step" });
  const place = el("div", { class: "chooser" },
    el("label", { class: "field" }, title, run), el("label", { class: "field" }, "kept step", slider), shown);
  const { studies, notice, trouble } = await runs().catch((error) => ({ studies: [], trouble: error.message }));
  if (!studies.length) return { nothing: nothing(trouble) };
  if (notice) say(notice);
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
  function told() {
    show();
    const isLast = Number(slider.value) === about.steps.length - 1;
    view.set({ [`${prefix}run`]: about.id, [`${prefix}step`]: isLast ? "" : stepOf() });
    changed(about, stepOf());
  }
  async function choose(id, wanted = "") {
    about = await get(`/api/models/${encodeURIComponent(id)}`);
    if (!about.steps.length) throw new Error(`run ${about.id} (${about.status}) has no kept weights yet; choose another`);
    if (![...run.options].some((option) => option.value === about.id)) {
      run.prepend(el("option", { value: about.id }, `seed ${about.seed}, ${about.id.slice(0, 8)}`));
    }
    run.value = about.id;
    const named = wanted === "best" ? about.best : Number(wanted);
    const at = wanted === "" || wanted === "last" ? -1 : about.steps.indexOf(named);
    if (at < 0 && wanted !== "" && wanted !== "last") say(`step ${wanted} was not kept; this is the last that was`);
    slider.max = about.steps.length - 1;
    slider.value = at < 0 ? about.steps.length - 1 : at;
    slider.disabled = about.steps.length < 2;
    told();
  }
  const failed = (error) => say(error.message, "error");
  run.addEventListener("change", () => choose(run.value).catch(failed));
  slider.addEventListener("input", told);
  return {
    place,
    start: () => choose(view.get(`${prefix}run`) || run.value, view.get(`${prefix}step`)).catch(failed),
    get about() { return about; },
    get step() { return about && stepOf(); },
  };
}

/** What stands where no run can be asked. */
const nothing = (trouble) => el("div", { class: "empty" },
  el("p", {}, trouble ?? "No run has begun in this home, so there is no model to ask."),
  el("p", {}, el("a", { href: "/start" }, "Start a study"), ", or train one in a terminal: ", el("code", {}, "seedbed run quickstart")));

// ---- tokens as elements ----

/** A token where it stands; what has no text of its own is shown by its name and not copied. */
export function tokenElement(text, name, attributes) {
  const shown = text === "" ? el("i", { class: "stand-in" }, visible(name)) : text;
  return el("span", {
    role: "button", tabindex: -1, class: text.includes("\n") ? "token line" : "token", ...attributes,
  }, shown);
}

/**
 * Arrow keys move between the children of an element, of which one is in the tab order.
 * In a text that reads from the right, the left arrow goes on. `columns` makes up and down keys move between rows.
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
    const turned = getComputedStyle(place).direction === "rtl" ? -1 : 1;
    const by = { ArrowRight: turned, ArrowLeft: -turned, ArrowDown: columns(), ArrowUp: -columns() }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : at + (by ?? NaN);
    if (Number.isNaN(to)) return;
    event.preventDefault();
    if (all[to]) go(all[to]);
  });
}

// ---- answers that stream in ----

/** Posts a question and calls `told` with each value of its answer; ends when the answer does or the signal says so. */
export async function follow(url, body, told, signal) {
  const response = await fetch(url, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal,
  }).catch((error) => { throw error.name === "AbortError" ? error : gone(); });
  if (!response.ok) await answered(response);
  let rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const [, name, data] = event.match(/^event: (\w+)\ndata: (.*)$/s);
      if (name === "trouble") throw new Error(JSON.parse(data));
      if (name === "value") told(JSON.parse(data));
    }
  }
}
