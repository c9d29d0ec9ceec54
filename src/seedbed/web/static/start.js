// Pick a study, change its dials, see what that takes, start it; and everything that was started, with its state.
// The address holds the study and every changed dial as a word, as on the command line.

import { el, find, get, post, say, stream, view, duration } from "/static/page.js";
import { chips } from "/static/parts.js";
import { tableOf } from "/static/tables.js";

const form = find("#form");
const fields = new Map(); // name → { row, set, problem, value, own }
let turn = 0;

const words = () => view.all("word");
const asked = () => new URLSearchParams([["study", view.get("study", "quickstart")], ["source", view.get("source", "shipped")], ...words().map((word) => ["word", word])]);
const kinds = (list) => list.filter((word) => /^(task|model)\.kind=/.test(word)).join();

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
    view.set({ study: name.join(":"), source, word: [] }, { push: true });
    readForm();
  });
}

// ---- its dials ----

async function readForm() {
  const mine = ++turn;
  let found;
  try {
    found = await get(`/api/start/form?${asked()}`);
  } catch (error) {
    form.replaceChildren();
    find("#plan").replaceChildren(el("p", { class: "warning", dir: "auto" }, error.message));
    return;
  }
  if (mine !== turn) return;
  fields.clear();
  find("#question").textContent = found.question;
  const given = new Map(words().map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
  form.replaceChildren(...found.groups.map((group, at) => el("details", { class: "dials", open: at === 0 || group.fields.some((field) => given.has(field.name)) },
    el("summary", {}, group.name), group.fields.map((field) => fieldOf(field, given.get(field.name))))));
  narrow();
  form.dataset.ready = "true";
  plan();
}

/** One dial: its name, what it holds, its meaning and range, and what is wrong with it. */
function fieldOf(field, given) {
  const own = field.values.join(",");
  const id = `dial-${field.name}`;
  const problem = el("p", { class: "error", id: `${id}-problem`, dir: "auto", hidden: true });
  const meaning = el("p", { id: `${id}-meaning` }, `${field.meaning}${field.meaning && field.kind !== "choice" ? " · " : ""}${field.kind === "choice" ? "" : field.accepted}${field.varies ? " · varies in this study" : ""}`);
  const reset = el("button", { type: "button", hidden: true, "aria-label": `${field.name}: back to the study’s own`, onclick: () => { entry.set(own); change(field.name, own); } }, "reset");
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
    entry.mark = (wrong) => box.firstChild.setAttribute("aria-invalid", wrong);
    input = box;
  } else {
    input = el("input", {
      type: "text", id, disabled: field.fixed, spellcheck: "false", placeholder: own ? "" : "unset", "aria-describedby": describedby,
      inputmode: field.kind === "number" ? "text" : null, oninput: (event) => change(field.name, event.target.value.trim() || own),
    });
    entry.set = (value) => { entry.value = value; input.value = value; };
    entry.mark = (wrong) => input.setAttribute("aria-invalid", wrong);
  }
  entry.set(entry.value);
  entry.row = el("div", { class: "dial", "data-dial": field.name },
    input.tagName === "INPUT" ? el("label", { for: id }, field.name) : el("span", { class: "name" }, field.name),
    el("div", {}, el("div", { class: "given" }, input, reset), meaning, problem));
  entry.row.classList.toggle("idle", !field.works);
  fields.set(field.name, entry);
  marked(entry);
  return entry.row;
}

function marked(entry) {
  const changed = entry.value !== entry.own;
  entry.row.classList.toggle("changed", changed);
  entry.reset.hidden = !changed;
}

/** Takes a dial's value into the address; other kinds have other dials. */
function change(name, value, redraw = false) {
  const entry = fields.get(name);
  entry.value = value;
  if (redraw) entry.set(value);
  marked(entry);
  const before = words();
  const rest = before.filter((word) => !word.startsWith(`${name}=`));
  const after = value === entry.own ? rest : [...rest, `${name}=${value}`];
  view.set({ word: after });
  if (kinds(before) !== kinds(after)) readForm(); else plan();
}

function narrow() {
  const wanted = find("#find").value.trim().toLowerCase();
  const idle = find("#idle").checked;
  for (const { row, field, value, own } of fields.values()) {
    const told = `${field.name} ${field.meaning}`.toLowerCase().includes(wanted);
    row.hidden = !told || (!field.works && !idle && value === own && !wanted);
  }
  if (wanted) for (const group of form.querySelectorAll("details")) group.open = Boolean(group.querySelector(".dial:not([hidden])"));
}
find("#find").addEventListener("input", narrow);
find("#idle").addEventListener("change", narrow);
form.addEventListener("submit", (event) => event.preventDefault());

// ---- its plan ----

let waiting;
/** Asks for the plan when typing pauses. */
function plan() {
  clearTimeout(waiting);
  find("#plan").setAttribute("aria-busy", "true");
  waiting = setTimeout(readPlan, 250);
}

async function readPlan() {
  const query = asked().toString();
  let found;
  try {
    found = await get(`/api/start/plan?${query}`);
  } catch (error) {
    found = { problems: [{ dial: "", what: error.message }] };
  }
  if (query !== asked().toString()) return;
  showProblems(found.problems);
  showPlan(found);
  find("#plan").setAttribute("aria-busy", "false");
}

function showProblems(problems) {
  for (const [name, entry] of fields) {
    const mine = problems.filter((one) => one.dial === name);
    entry.problem.textContent = mine.map((one) => one.what).join("; ");
    entry.problem.hidden = !mine.length;
    entry.mark(mine.length > 0);
    if (mine.length) { entry.row.hidden = false; entry.row.closest("details").open = true; }
  }
}

function showPlan(found) {
  const lost = found.problems.filter((one) => !fields.has(one.dial));
  const go = el("button", { type: "button", class: "primary", id: "go", onclick: start, disabled: found.problems.length > 0 }, "Start");
  find("#plan").replaceChildren(
    el("div", { class: "bar" }, go, el("span", { class: "faint" }, found.problems.length
      ? `${found.problems.length} problem${found.problems.length === 1 ? "" : "s"} to mend first; nothing is started` : `${found.runs.toLocaleString("en")} run${found.runs === 1 ? "" : "s"}`)),
    ...lost.map((one) => el("p", { class: "error", dir: "auto" }, one.what)),
    ...(found.warnings ?? []).map((warning) => el("p", { class: "warning", dir: "auto" }, warning)),
    ...(found.tables ?? []).map((table) => tableOf(table)));
}

async function start(event) {
  event.target.disabled = true;
  try {
    const found = await post("/api/start", { study: view.get("study", "quickstart"), source: view.get("source", "shipped"), words: words() });
    if (found.problems.length) { showProblems(found.problems); showPlan(found); return; }
    say(`${found.job.study} is started`);
    await readJobs();
    find("#started").scrollIntoView({ block: "nearest" });
  } catch (error) {
    say(error.message, "error");
  } finally {
    event.target.disabled = false;
  }
}

// ---- what was started ----

const jobs = new Map(); // id → { card, show }
const progress = new Map(); // study → what the stream says
const ACTS = { running: ["pause", "stop"], paused: ["resume", "stop", "forget"], stopped: ["resume", "forget"], failed: ["resume", "forget"], planned: ["resume", "forget"], finished: ["forget"] };
const WORDS = { pause: "Pause", stop: "Stop", resume: "Resume", forget: "Take off the list" };
const addressOf = (name) => `/study/${name.split("/").map(encodeURIComponent).join("/")}`;

function cardOf(job) {
  const state = el("span", { class: "state" });
  const acts = el("div", { class: "acts" });
  const said = el("p", { dir: "auto" });
  const last = el("p", { class: "mono faint", dir: "auto" });
  const fill = el("i");
  const track = el("div", { class: "track", "data-state": "running", role: "progressbar", "aria-label": `progress of ${job.study}`, "aria-valuemin": 0, "aria-valuemax": 100, hidden: true }, fill);
  const lines = el("pre", {});
  const log = el("details", {}, el("summary", { class: "faint" }, "What it said"), lines,
    el("p", { class: "faint" }, el("a", { href: `/api/start/log/${job.id}` }, "all of it as text"), " · the same in a terminal: ", el("code", {}, job.command)));
  const card = el("article", { class: "job", "data-id": job.id }, el("header", {},
    el("h3", {}, el("a", { href: addressOf(job.study) }, el("bdi", {}, job.study))), state, acts),
  job.words.length ? el("p", {}, job.words.map((word) => [el("code", {}, word), " "])) : "", said, track, last, log);
  let now = {};
  const show = (fresh) => {
    const before = now;
    now = fresh;
    state.dataset.state = now.state;
    state.textContent = now.state;
    card.dataset.state = now.state;
    said.textContent = now.said;
    lines.textContent = now.lines.join("\n") || "nothing yet";
    last.textContent = now.state === "running" ? now.lines.at(-1) ?? "" : "";
    if (before.state !== now.state) {
      acts.replaceChildren(...ACTS[now.state].map((what) => el("button", { type: "button", "data-act": what, onclick: (event) => act(event.target, now.id, what) }, WORDS[what])));
    }
    if (now.state === "failed" && before.state !== "failed") log.open = true;
    move();
  };
  const move = () => {
    const at = progress.get(now.study);
    track.hidden = now.state !== "running" || !at?.asked;
    if (track.hidden) return;
    const share = at.done / at.asked;
    fill.style.width = `${(100 * share).toFixed(1)}%`;
    track.setAttribute("aria-valuenow", Math.round(100 * share));
    track.title = at.seconds_left === null ? "" : `${duration(at.seconds_left)} left`;
  };
  show(job);
  return { card, show, move };
}

async function act(button, id, what) {
  button.disabled = true;
  try {
    await post(`/api/start/${id}/${what}`, {});
    await readJobs();
  } catch (error) {
    say(error.message, "error");
  } finally {
    button.disabled = false;
  }
}

async function readJobs() {
  const found = await get("/api/start/jobs");
  const known = new Set(found.jobs.map((job) => job.id));
  for (const [id, { card }] of jobs) if (!known.has(id)) { card.remove(); jobs.delete(id); }
  for (const job of found.jobs) {
    if (jobs.has(job.id)) jobs.get(job.id).show(job);
    else jobs.set(job.id, cardOf(job));
  }
  const cards = found.jobs.map((job) => jobs.get(job.id).card);
  cards.forEach((card, at) => { if (find("#list").children[at] !== card) find("#list").insertBefore(card, find("#list").children[at] ?? null); });
  find("#started").hidden = !cards.length;
  return found.jobs.some((job) => job.state === "running");
}

/** Looks again soon while something runs, now and then otherwise, and not at all in a hidden tab. */
async function follow() {
  let running = false;
  try {
    running = !document.hidden && await readJobs();
  } catch (error) {
    say(error.message, "error");
  }
  setTimeout(follow, running ? 1500 : 5000);
}

stream("/api/live/studies", { news: (found) => {
  for (const [name, at] of Object.entries(found)) progress.set(name, at);
  for (const job of jobs.values()) job.move();
} });
addEventListener("popstate", readForm);
await Promise.all([follow(), readStudies().then(readForm)]);
