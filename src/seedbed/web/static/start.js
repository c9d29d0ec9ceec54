// Pick a study, change its settings, see its estimate, start it; and the list of jobs with their states.
// The URL holds the study and every changed setting as an override, as on the command line.

import { el, find, get, post, notify, number, view, duration } from "/static/page.js";
import { chips } from "/static/widgets.js";
import { tableOf } from "/static/tables.js";

const form = find("#form");
const fields = new Map(); // name → { row, set, problem, value, own }
let turn = 0;

const overrides = () => view.all("override");
const request = () => new URLSearchParams([["study", view.get("study", "quickstart")], ["source", view.get("source", "shipped")], ...overrides().map((text) => ["override", text])]);
const kinds = (list) => list.filter((text) => /^(task|model)\.kind=/.test(text)).join();

// ---- the study ----

async function readStudies() {
  const { shipped, stored } = await get("/api/start/studies");
  const option = (source) => (study) => el("option", { value: `${source}:${study.name}` }, study.name);
  const picker = find("#study");
  picker.replaceChildren(el("optgroup", { label: "Shipped" }, shipped.map(option("shipped"))),
    ...(stored.length ? [el("optgroup", { label: "In the store, as last run" }, stored.map(option("stored")))] : []));
  picker.value = `${view.get("source", "shipped")}:${view.get("study", "quickstart")}`;
  picker.addEventListener("change", () => {
    const [source, ...name] = picker.value.split(":");
    view.set({ study: name.join(":"), source, override: [] }, { push: true });
    readForm();
  });
}

// ---- its settings ----

async function readForm() {
  const mine = ++turn;
  let found;
  try {
    found = await get(`/api/start/form?${request()}`);
  } catch (error) {
    form.replaceChildren();
    find("#plan").replaceChildren(el("p", { class: "warning", dir: "auto" }, error.message));
    return;
  }
  if (mine !== turn) return;
  fields.clear();
  find("#question").textContent = found.question;
  const given = new Map(overrides().map((text) => [text.slice(0, text.indexOf("=")), text.slice(text.indexOf("=") + 1)]));
  form.replaceChildren(...found.groups.map((group, at) => el("details", { class: "settings", open: at === 0 || group.fields.some((field) => given.has(field.name)) },
    el("summary", {}, group.name), group.fields.map((field) => fieldOf(field, given.get(field.name))))));
  narrow();
  form.dataset.ready = "true";
  plan();
}

/** One setting: its name, input, description and range, and its problem. */
function fieldOf(field, given) {
  const own = field.values.join(",");
  const id = `setting-${field.name}`;
  const problem = el("p", { class: "error", id: `${id}-problem`, dir: "auto", hidden: true });
  const meaning = el("p", { id: `${id}-meaning` }, `${field.meaning}${field.meaning && field.kind !== "choice" ? " · " : ""}${field.kind === "choice" ? "" : field.accepted}${field.varies ? " · varies in this study" : ""}`);
  const reset = el("button", { type: "button", hidden: true, "aria-label": `${field.name}: reset to the study’s own value`, onclick: () => { entry.set(own); change(field.name, own); } }, "reset");
  const entry = { own, problem, field, value: given ?? own, reset };
  const describedby = `${id}-meaning ${id}-problem`;
  let input;
  if (field.kind === "choice" || field.kind === "one") {
    const choices = [...new Set([...field.choices, ...field.values])];
    const box = el("div", {});
    entry.set = (value) => {
      entry.value = value;
      box.replaceChildren(chips(field.name, choices, value.split(",").filter(Boolean), (chosen) => change(field.name, chosen.join(",") || own, true), { single: field.kind === "one", describedby }));
    };
    entry.setInvalid = (invalid) => box.firstChild.setAttribute("aria-invalid", invalid);
    input = box;
  } else {
    input = el("input", {
      type: "text", id, disabled: field.fixed, spellcheck: "false", placeholder: own ? "" : "unset", "aria-describedby": describedby,
      inputmode: field.kind === "number" ? "text" : null, oninput: (event) => change(field.name, event.target.value.trim() || own),
    });
    entry.set = (value) => { entry.value = value; input.value = value; };
    entry.setInvalid = (invalid) => input.setAttribute("aria-invalid", invalid);
  }
  entry.set(entry.value);
  entry.row = el("div", { class: "setting", "data-setting": field.name },
    input.tagName === "INPUT" ? el("label", { for: id }, field.name) : el("span", { class: "name" }, field.name),
    el("div", {}, el("div", { class: "input" }, input, reset), meaning, problem));
  entry.row.classList.toggle("inactive", !field.has_effect);
  fields.set(field.name, entry);
  markChanged(entry);
  return entry.row;
}

function markChanged(entry) {
  const changed = entry.value !== entry.own;
  entry.row.classList.toggle("changed", changed);
  entry.reset.hidden = !changed;
}

/** Puts a setting's value into the URL; another kind has other settings, so the form is loaded again. */
function change(name, value, redraw = false) {
  const entry = fields.get(name);
  entry.value = value;
  if (redraw) entry.set(value);
  markChanged(entry);
  const before = overrides();
  const rest = before.filter((text) => !text.startsWith(`${name}=`));
  const after = value === entry.own ? rest : [...rest, `${name}=${value}`];
  view.set({ override: after });
  if (kinds(before) !== kinds(after)) readForm(); else plan();
}

function narrow() {
  const wanted = find("#find").value.trim().toLowerCase();
  const showInactive = find("#inactive").checked;
  for (const { row, field, value, own } of fields.values()) {
    const matches = `${field.name} ${field.meaning}`.toLowerCase().includes(wanted);
    row.hidden = !matches || (!field.has_effect && !showInactive && value === own && !wanted);
  }
  if (wanted) for (const group of form.querySelectorAll("details")) group.open = Boolean(group.querySelector(".setting:not([hidden])"));
}
find("#find").addEventListener("input", narrow);
find("#inactive").addEventListener("change", narrow);
form.addEventListener("submit", (event) => event.preventDefault());

// ---- its plan ----

let waiting;
/** Requests the plan when typing pauses. */
function plan() {
  clearTimeout(waiting);
  find("#plan").setAttribute("aria-busy", "true");
  waiting = setTimeout(readPlan, 250);
}

async function readPlan() {
  const query = request().toString();
  let found;
  try {
    found = await get(`/api/start/plan?${query}`);
  } catch (error) {
    found = { problems: [{ setting: "", message: error.message }] };
  }
  if (query !== request().toString()) return;
  showProblems(found.problems);
  showPlan(found);
  find("#plan").setAttribute("aria-busy", "false");
}

function showProblems(problems) {
  for (const [name, entry] of fields) {
    const mine = problems.filter((one) => one.setting === name);
    entry.problem.textContent = mine.map((one) => one.message).join("; ");
    entry.problem.hidden = !mine.length;
    entry.setInvalid(mine.length > 0);
    if (mine.length) { entry.row.hidden = false; entry.row.closest("details").open = true; }
  }
}

function showPlan(found) {
  const general = found.problems.filter((one) => !fields.has(one.setting));
  const go = el("button", { type: "button", class: "primary", id: "go", onclick: start, disabled: found.problems.length > 0 || found.ended === found.runs }, "Start");
  find("#plan").replaceChildren(
    el("div", { class: "bar go" }, go, el("p", { class: "estimate" }, estimateOf(found))),
    ...general.map((one) => el("p", { class: "error", dir: "auto" }, one.message)),
    ...(found.warnings ?? []).map((warning) => el("p", { class: "warning", dir: "auto" }, warning)),
    found.tables?.length ? el("details", {}, el("summary", {}, "Configs and packs"), found.tables.map((table) => tableOf(table))) : "");
}

const plural = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

/** What starting would take; or why it cannot start, or would train nothing. */
function estimateOf({ problems, runs, ended, seconds, basis }) {
  if (problems.length) return `${plural(problems.length, "problem")} to fix before it can start`;
  if (ended === runs) return `${runs === 1 ? "Its only run has" : `All ${number(runs)} runs have`} ended: starting trains nothing.`;
  return [ended ? `${number(runs - ended)} of ${plural(runs, "run")} left` : plural(runs, "run"), ", about ", el("b", {}, duration(seconds)), ` (${basis})`];
}

async function start(event) {
  event.target.disabled = true;
  try {
    const found = await post("/api/start", { study: view.get("study", "quickstart"), source: view.get("source", "shipped"), overrides: overrides() });
    if (found.problems.length) { showProblems(found.problems); showPlan(found); return; }
    notify(`${found.job.study} started`);
    await readJobs();
    find("#jobs").scrollIntoView({ block: "start" });
  } catch (error) {
    notify(error.message, "error");
  } finally {
    event.target.disabled = false;
  }
}

// ---- jobs ----

const jobs = new Map(); // id → { card, show }
const ACTIONS = { running: ["pause", "stop"], paused: ["resume", "stop", "forget"], stopped: ["resume", "forget"], failed: ["resume", "forget"], planned: ["resume", "forget"], finished: ["forget"] };
const LABELS = { pause: "Pause", stop: "Stop", resume: "Resume", forget: "Remove from list" };
const addressOf = (name) => `/study/${name.split("/").map(encodeURIComponent).join("/")}`;

function cardOf(job) {
  const state = el("span", { class: "state" });
  const actions = el("div", { class: "actions" });
  const message = el("p", { dir: "auto" });
  const last = el("p", { class: "mono faint", dir: "auto" });
  const fill = el("i");
  const track = el("div", { class: "track", "data-state": "running", role: "progressbar", "aria-label": `progress of ${job.study}`, "aria-valuemin": 0, "aria-valuemax": 100, hidden: true }, fill);
  const left = el("p", { class: "faint", hidden: true });
  const lines = el("pre", { tabindex: 0 });
  const log = el("details", {}, el("summary", { class: "faint" }, "Log"), lines,
    el("p", { class: "faint" }, el("a", { href: `/api/start/log/${job.id}` }, "as plain text"), " · the same on the command line: ", el("code", {}, job.command)));
  const card = el("article", { class: "job", "data-id": job.id }, el("header", {},
    el("h3", {}, el("a", { href: addressOf(job.study) }, el("bdi", {}, job.study))), state, actions),
  job.overrides.length ? el("p", {}, job.overrides.map((text) => [el("code", {}, text), " "])) : "", message, track, left, last, log);
  let now = {};
  const show = (fresh) => {
    const before = now;
    now = fresh;
    state.dataset.state = now.state;
    state.textContent = now.state;
    card.dataset.state = now.state;
    message.textContent = now.message;
    lines.textContent = now.log_lines.join("\n") || "no output yet";
    last.textContent = now.state === "running" ? now.log_lines.at(-1) ?? "" : "";
    if (before.state !== now.state) {
      actions.replaceChildren(...ACTIONS[now.state].map((what) => el("button", { type: "button", "data-act": what, onclick: (event) => act(event.target, now.id, what) }, LABELS[what])));
    }
    if (now.state === "failed" && before.state !== "failed") log.open = true;
    move();
  };
  const move = () => {
    const at = now.progress; // of its own runs, which may be a part of the study
    track.hidden = left.hidden = now.state !== "running" || !at?.total_steps;
    if (track.hidden) return;
    const share = at.done_steps / at.total_steps;
    fill.style.width = `${(100 * share).toFixed(1)}%`;
    track.setAttribute("aria-valuenow", Math.round(100 * share));
    left.textContent = `${Math.floor(100 * share)} %${at.seconds_left === null ? "" : ` · ${duration(at.seconds_left)} left`}`;
  };
  show(job);
  return { card, show, state: () => now.state };
}

async function act(button, id, what) {
  button.disabled = true;
  try {
    await post(`/api/start/${id}/${what}`, {});
    await readJobs();
  } catch (error) {
    notify(error.message, "error");
  } finally {
    button.disabled = false;
  }
}

async function readJobs() {
  const found = await get("/api/start/jobs");
  const known = new Set(found.jobs.map((job) => job.id));
  if (found.jobs.some((job) => jobs.has(job.id) && jobs.get(job.id).state() !== job.state)) plan(); // what is left has changed
  for (const [id, { card }] of jobs) if (!known.has(id)) { card.remove(); jobs.delete(id); }
  for (const job of found.jobs) {
    if (jobs.has(job.id)) jobs.get(job.id).show(job);
    else jobs.set(job.id, cardOf(job));
  }
  const cards = found.jobs.map((job) => jobs.get(job.id).card);
  cards.forEach((card, at) => { if (find("#list").children[at] !== card) find("#list").insertBefore(card, find("#list").children[at] ?? null); });
  find("#jobs").hidden = !cards.length;
  return found.jobs.some((job) => job.state === "running");
}

/** Polls the jobs: often while one runs, rarely otherwise, never in a hidden tab. */
async function follow() {
  let running = false;
  try {
    running = !document.hidden && await readJobs();
  } catch (error) {
    notify(error.message, "error");
  }
  setTimeout(follow, running ? 1500 : 5000);
}

addEventListener("popstate", readForm);
await Promise.all([follow(), readStudies().then(readForm)]);
