// All studies, newest first; progress is streamed, the first answer of a study is requested when it is visible.

import { el, find, get, stream, view, duration, number } from "/static/page.js";

const place = find("#studies");
const filter = find("#filter"), order = find("#order"), status = find("#status-filter");
const cards = new Map(); // name → { card, show }
const ORDER = ["finished", "running", "stopped", "planned", "diverged", "failed"];

const SORTS = {
  "": (one, other) => other.study.created.localeCompare(one.study.created),
  name: (one, other) => one.study.name.localeCompare(other.study.name),
  runs: (one, other) => other.study.runs - one.study.runs,
};

const addressOf = (name) => `/study/${name.split("/").map(encodeURIComponent).join("/")}`;
const stateLabels = (states) => ORDER.filter((state) => states[state]).map((state) =>
  el("span", { class: "state", "data-state": state }, `${number(states[state])} ${state}`));

function cardOf(study) {
  const fill = el("i");
  const track = el("div", { class: "track", role: "progressbar", "aria-label": `progress of ${study.name}`, "aria-valuemin": 0, "aria-valuemax": 100 }, fill);
  const states = el("div", { class: "states" });
  const left = el("span", { class: "faint left" });
  const answer = el("p", { class: "headline", dir: "auto" });
  const entry = { answer, study, states: study.states, read: 0, version: 0 };
  const card = el("article", { class: "card", "data-name": study.name },
    el("h2", {}, el("a", { href: addressOf(study.name) }, el("bdi", {}, study.name))),
    study.question && el("p", { class: "question", dir: "auto" }, study.question),
    el("div", { class: "progress" }, track, left), states, answer,
    el("p", { class: "faint" }, study.varies.length ? `varies ${study.varies.join(", ")} · ` : "",
      el("time", { datetime: study.created, title: `${study.created.slice(0, 16).replace("T", " ")} UTC` }, `first run ${ago(study.created)}`)));
  const show = (progress) => {
    const share = progress.total_steps ? progress.done_steps / progress.total_steps : 0;
    fill.style.width = `${(100 * share).toFixed(1)}%`;
    track.setAttribute("aria-valuenow", Math.round(100 * share));
    track.dataset.state = progress.states.running ? "running" : "";
    track.hidden = progress.total_steps === null;
    left.textContent = progress.seconds_left !== null ? `${Math.floor(100 * share)} % · ${duration(progress.seconds_left)} left` : share < 1 && progress.total_steps ? `${Math.floor(100 * share)} %` : "";
    states.replaceChildren(...stateLabels(progress.states));
    entry.states = progress.states;
  };
  show({ states: study.states, total_steps: null, seconds_left: null });
  return Object.assign(entry, { card, show });
}

/** How long ago a time was: 5 min ago, 2 days ago. */
function ago(time) {
  const seconds = (Date.now() - new Date(/[Z+]/.test(time) ? time : `${time}Z`)) / 1000;
  return seconds < 172_800 ? `${duration(seconds)} ago` : `${Math.floor(seconds / 86_400)} days ago`;
}

async function readHeadline(entry) {
  entry.read = entry.version || 1;
  const found = await get(`/api/headline/${addressOf(entry.study.name).slice("/study/".length)}`);
  entry.answer.hidden = !found.sentence;
  entry.answer.replaceChildren(found.sentence && el("span", {}, found.sentence), found.warning && el("span", { class: "warning" }, ` (${found.warning})`));
}

const watcher = new IntersectionObserver((seen) => {
  for (const one of seen) {
    const entry = cards.get(one.target.dataset.name);
    entry.visible = one.isIntersecting;
    if (one.isIntersecting && entry.read !== (entry.version || 1)) readHeadline(entry);
  }
}, { rootMargin: "200px" });

async function read() {
  const { studies } = await get("/api/studies");
  const names = new Set(studies.map((study) => study.name));
  for (const [name, entry] of cards) if (!names.has(name)) { entry.card.remove(); cards.delete(name); }
  for (const study of studies) if (!cards.has(study.name)) {
    const entry = cardOf(study);
    cards.set(study.name, entry);
    place.append(entry.card);
    watcher.observe(entry.card);
  }
  if (studies.length) find("#none")?.remove();
  narrow();
}

function narrow() {
  const wanted = filter.value.trim().toLowerCase();
  for (const { card, study, states } of cards.values()) {
    card.hidden = !`${study.name} ${study.question}`.toLowerCase().includes(wanted) || (status.value !== "" && !states[status.value]);
  }
  const shown = [...cards.values()].sort(SORTS[order.value]).map(({ card }) => card);
  shown.forEach((card, at) => { if (place.children[at] !== card) place.insertBefore(card, place.children[at] ?? null); });
}

filter.value = view.get("find");
order.value = view.get("sort");
status.value = view.get("status");
filter.addEventListener("input", () => { view.set({ find: filter.value }); narrow(); });
for (const [select, name] of [[order, "sort"], [status, "status"]]) {
  select.addEventListener("change", () => { view.set({ [name]: select.value }); narrow(); });
}

await read();
place.dataset.ready = "true";
let loading = null;
stream("/api/live/studies", {
  update: async (found) => {
    if (Object.keys(found).some((name) => !cards.has(name)) || [...cards.keys()].some((name) => !(name in found))) {
      await (loading ??= read().finally(() => { loading = null; }));
    }
    for (const [name, progress] of Object.entries(found)) {
      const entry = cards.get(name);
      if (!entry) continue;
      entry.version = progress.version;
      entry.show(progress);
      if (entry.visible && !progress.states.running && entry.read !== entry.version) readHeadline(entry);
    }
  },
  failure: (message) => { if (cards.size) find("#status").textContent = message; },
});
