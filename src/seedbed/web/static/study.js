// A study: its figures, answers and runs with the view parameters of the URL, updated live while it trains.

import { duration, el, embedder, find, get, notify, number, post, sentenceOf, stream, view } from "/static/page.js";
import { Figure } from "/static/figure.js";
import { showConfigs } from "/static/configs.js";
import { tableOf } from "/static/tables.js";

const name = find("#study").dataset.name;
const path = name.split("/").map(encodeURIComponent).join("/");
const CHANNELS = ["colour", "column", "row"];
const FIGURE_FIELDS = [...CHANNELS, "x_scale", "y_scale", "clock"]; // they change no numbers
const FIELDS = [...FIGURE_FIELDS, "t_max"];
const OWN_FIELDS = ["hide", "smooth", "sort", "find", "open", "rows", "status", "tick", "column_shown", "column_hidden"]; // of this page alone
const VERDICTS = { yes: "Yes", no: "No", "cannot tell": "Cannot tell", "no verdict": "No verdict" };
const CARD_CHARACTERS = 220; // of a sentence, after which the rest of it is folded
const LEGEND_CHARACTERS = 120; // of a note of a table, from which it is not repeated
const RELOAD_MS = 30_000; // between two full reloads while training; curves are updated continuously
const controls = find("#controls");
const figures = [];

// ---- the query: parameters that the server needs, without those that only this page uses ----

function query(more = {}) {
  const params = new URLSearchParams();
  for (const [key, value] of new URLSearchParams(location.search)) if ([...FIELDS, "only"].includes(key)) params.append(key, value);
  for (const [key, value] of Object.entries(more)) for (const one of [value].flat()) params.append(key, one);
  const text = params.toString();
  return text ? `?${text}` : "";
}

const request = (part, more = {}) => get(`/api/${part}/${path}${query(more)}`);

// ---- summary ----

function showSummary(info) {
  find("#state").textContent = info.state;
  find("#annotations").replaceChildren(...info.annotations.map((line) => el("p", { dir: "auto" }, line)));
  find("#warnings").replaceChildren(...info.warnings.map((warning) => el("p", { class: "warning", dir: "auto" }, warning)));
  fillChoices(info.settings);
  find("#reproduce").replaceChildren(find("#reproduce-head"), el("pre", {}, el("code", {}, info.commands.join("\n"))),
    el("p", { class: "faint" }, "The study with every setting written out is under Tables."));
  while (figures.length > info.figures.length) figures.pop().remove();
  info.figures.forEach(({ title, waits }, at) => {
    if (!figures[at]) {
      figures[at] = new Figure(at + 1, title, (n) => request("figure", { number: n }), (ending) => pictureOf(at + 1, ending));
      find(at ? "#figures" : "#curve").append(figures[at].element);
    }
    figures[at].waits = waits;
  });
  showOffers();
}

/** The address of a picture of what is on the screen: without hidden series, smoothed, in the theme of the page. */
function pictureOf(n, ending) {
  const smooth = view.get("smooth");
  return `/download/study/${path}/figure/${n}.${ending}${query({ hide: view.all("hide"), ...(smooth ? { smooth } : {}), theme: document.documentElement.dataset.theme })}`;
}

function fillChoices(settings) {
  for (const channel of CHANNELS) {
    const select = controls.elements[channel];
    const wanted = view.get(channel);
    select.replaceChildren(el("option", { value: "" }, "as declared"), el("option", { value: "none" }, "none"),
      ...settings.map((setting) => el("option", { value: setting.name, title: setting.name }, setting.label)));
    select.value = wanted;
    if (select.selectedIndex < 0) select.append(el("option", { value: wanted, selected: true }, wanted));
  }
  const only = find("#only");
  only.replaceChildren(el("option", { value: "" }, "choose a value …"), ...settings.map((setting) => el("optgroup", { label: setting.label },
    ...setting.values.slice(0, 200).map(({ text, filter }) => el("option", { value: `${setting.key}=${filter}` }, `${setting.label} = ${text}`)))));
}

// ---- filters: one per setting, with its accepted values separated by commas ----

const parseFilter = (filter) => {
  const [key, text] = [filter.slice(0, filter.indexOf("=")), filter.slice(filter.indexOf("=") + 1)];
  return [key, text.split(/,(?![^[]*\])/)];
};
const formatFilter = (key, values) => `${key}=${values.join(",")}`;

/** The filters with one more value; filters that were typed, with several terms or signs other than =, stay as they are. */
function addFilter(filters, filter) {
  const typed = filters.filter((one) => /[\s<>!]/.test(one));
  const merged = new Map(filters.filter((one) => !typed.includes(one)).map(parseFilter));
  const [key, values] = parseFilter(filter);
  merged.set(key, [...new Set([...(merged.get(key) ?? []), ...values])]);
  return [...typed, ...[...merged].map(([name_, several]) => formatFilter(name_, several))];
}

function showFilters() {
  for (const field of FIELDS) controls.elements[field].value = view.get(field);
  controls.elements.smooth.value = view.get("smooth", "0");
  if (["row", "x_scale", "y_scale", "t_max"].some((field) => view.get(field))) find("#controls .more").open = true;
  find("#filters").replaceChildren(...view.all("only").map((filter) => el("button", {
    type: "button", "aria-label": `remove the filter ${filter}`, title: filter,
    onclick: () => change({ only: view.all("only").filter((other) => other !== filter) }),
  }, filter.replace(/^id(!?)=(.*)$/, (_, not, ids) => `${not ? "without" : "only"} ${ids.split(",").length} ticked runs`))));
}

/** An answer's first sentence and, if it is long, what is folded below: a full stop before a capital letter ends one. */
function splitSentence(text) {
  const [first] = text.length > CARD_CHARACTERS ? text.match(/^.{40,}?\.(?=\s+\p{Lu})/u) ?? [text] : [text];
  return [first, text.slice(first.length).trim()];
}

function cardOf(answer) {
  const [sentence, rest] = splitSentence(answer.sentence);
  return el("article", { class: "answer", "data-verdict": answer.verdict ?? "" },
    el("header", {}, el("h3", { dir: "auto" }, answer.question), answer.verdict && el("span", { class: "badge" }, VERDICTS[answer.verdict] ?? answer.verdict)),
    el("p", { class: "sentence", dir: "auto" }, sentence), answer.waits && el("div", { class: "offer" }),
    (rest || answer.warning) && el("details", {}, el("summary", {}, "Details"), rest && el("p", { dir: "auto" }, rest), answer.warning && el("p", { class: "warning", dir: "auto" }, sentenceOf(answer.warning))),
    answer.figure && el("p", { class: "noprint" }, el("a", { href: `#figure-${answer.figure}` }, `Figure ${answer.figure}`)));
}

function showAnswers({ answers }) {
  find("#answers").hidden = !answers.length;
  find("#answers .answers").replaceChildren(...answers.map(cardOf));
  find("#figures").hidden = figures.length < 2;
  showOffers();
}

// ---- analyses that figures and answers wait for ----

let analyses = { missing: 0, job: null };

/** Offers to compute what is missing, above and where it is missing, or says how far that is. */
function showOffers() {
  const { missing, job } = analyses;
  const running = job?.state === "running";
  const button = () => el("button", { type: "button", onclick: startAnalyses }, `Compute ${number(missing)} analyses of checkpoints`);
  const status = () => el("p", { class: "faint", role: "status" }, el("progress", { max: analyses.most, value: analyses.most - missing, "aria-label": "analyses" }), ` ${number(missing)} analyses of checkpoints are left …`);
  const offer = () => (running ? status() : missing ? button() : "");
  for (const place of document.querySelectorAll(".answer .offer")) place.replaceChildren(offer());
  for (const figure of figures) figure.waiting.replaceChildren(figure.waits ? offer() : "");
  find("#analyses").replaceChildren(...(running ? [status()] : missing && job?.state === "failed" ? [el("p", { class: "warning" }, job.message, " ", el("a", { href: `/api/start/log/${job.id}` }, "Its log"))] : []));
}

async function startAnalyses() {
  try {
    await post(`/api/analyses/${path}`, {});
    await readAnalyses();
  } catch (error) { notify(error.message, "error"); }
}

/** Asks what is missing; while it is being computed, again every two seconds, and everything when it is there. */
async function readAnalyses() {
  const before = analyses;
  const found = await get(`/api/analyses/${path}`);
  analyses = { ...found, most: Math.max(found.missing, before.job?.state === "running" ? before.most ?? 0 : 0) };
  showOffers();
  if (found.job?.state === "running") setTimeout(() => readAnalyses().catch(() => {}), 2000);
  else if (before.job?.state === "running") read({ summary: true });
}

function showTables(found) {
  const files = (number) => el("p", { class: "notes noprint" }, "Download: ", ...[["csv", "CSV"], ["tex", "LaTeX"], ["md", "Markdown"]].flatMap(([ending, text]) =>
    [el("a", { href: `/download/study/${path}/table/${number}.${ending}${query()}`, download: "" }, text), " "]));
  const legends = new Set(); // long notes, which stand once
  const isNew = (note) => note.length <= LEGEND_CHARACTERS || (!legends.has(note) && legends.add(note));
  const once = (table) => ({ ...table, notes: table.notes.filter(isNew) });
  find("#tables").replaceChildren(find("#tables-head"), ...found.tables.flatMap((table, at) => [tableOf(once(table)), files(at + 1)]),
    ...found.provenance.map((table) => el("details", {}, el("summary", {}, table.title), tableOf({ ...table, title: "" }))),
    el("details", {}, el("summary", {}, "The study file"), el("pre", {}, el("code", {}, found.text))));
}

// ---- loading ----

let loading = null;
let reload = false;

/** Loads the page's content; a call during a load triggers one more load afterwards. */
async function read(parts) {
  if (loading) { reload = true; return loading; }
  loading = (async () => {
    try {
      const first = find("#body").hidden;
      const prefetched = first && Promise.allSettled([request("figure", { number: 1 }), embedder()]); // requested ahead, in parallel with the summary
      if (parts.summary) showSummary(await request("study"));
      find("#body").hidden = false;
      // The first figure stands above all that follows, which may therefore come later and moves nothing.
      if (first) await figures[0]?.read(prefetched.then(([found]) => found.value ?? Promise.reject(found.reason)));
      if (parts.summary) showAnswers(await request("answers"));
      if (!first) for (const figure of figures) await figure.refresh(); // one by one: the first is visible while others render
      if (parts.summary) {
        showConfigs(await request("configs"), { study: name, change });
        showTables(await request("tables"));
        find("#below").hidden = false;
      }
      if (find("#status").dataset.kind === "error") notify("");
      find("#study").dataset.ready = "true";
      if (first) readRest();
    } catch (error) {
      notify(error.message, "error");
    } finally {
      loading = null;
      if (reload) { reload = false; read({ summary: true }); }
    }
  })();
  return loading;
}

/** Loads what is not on the screen yet, one by one, so that a print shows every figure. */
async function readRest() {
  await readAnalyses().catch(() => {});
  for (const figure of figures) if (!figure.fresh) await figure.read();
}

async function change(changes) {
  view.set(changes, { push: true });
  showFilters();
  for (const figure of figures) figure.invalidate();
  await read({ summary: !Object.keys(changes).every((field) => FIGURE_FIELDS.includes(field)) });
  if (find("#status").hidden) follow();
}

controls.elements.smooth.addEventListener("input", (event) => {
  view.set({ smooth: Number(event.target.value) ? event.target.value : "" });
  for (const figure of figures) if (figure.shown?.spec) figure.redraw();
});
controls.addEventListener("change", (event) => {
  if (event.target.name === "smooth") return;
  if (event.target.id === "only") {
    const filter = event.target.value;
    if (filter) change({ only: addFilter(view.all("only"), filter) });
  } else if (event.target.id === "filter") {
    const filter = event.target.value.trim();
    if (filter) change({ only: [...view.all("only"), filter] });
    event.target.value = "";
  } else change({ [event.target.name]: event.target.value });
});
controls.addEventListener("submit", (event) => event.preventDefault());
controls.addEventListener("reset", (event) => {
  event.preventDefault();
  change(Object.fromEntries([...FIELDS, ...OWN_FIELDS, "only"].map((field) => [field, ""])));
});
addEventListener("popstate", () => { showFilters(); for (const figure of figures) figure.invalidate(); read({ summary: true }); });

// ---- while it trains ----

let last = null; // the previous update
let loadedAt = Date.now();

function showProgress(progress) {
  const share = progress.total_steps ? progress.done_steps / progress.total_steps : 0;
  const track = find("#track");
  track.firstElementChild.style.width = `${(100 * share).toFixed(1)}%`;
  track.dataset.state = progress.states.running ? "running" : "";
  track.setAttribute("aria-valuenow", Math.round(100 * share));
  track.hidden = progress.total_steps === null;
  find("#left").textContent = progress.seconds_left !== null ? `${Math.floor(100 * share)} % · ${duration(progress.seconds_left)} left` : progress.total_steps && share < 1 ? `${Math.floor(100 * share)} %` : "";
}

let following = null;
let streaming = "";

/** Streams the study's progress and its visible figures. */
function follow() {
  const seen = figures.filter((figure) => figure.visible).map((figure) => figure.number).slice(0, 4).join(",");
  const address = `/api/live/study/${path}${query(seen ? { figures: seen } : {})}`;
  if (address === streaming) return;
  streaming = address;
  following?.();
  following = stream(address, {
    update,
    rows: (found) => figures[found.number - 1]?.updateRows(found),
    removed: () => notify("this study was removed from the store; the page shows its last state", "error"),
    failure: (message) => notify(message, "error"),
  });
}

function update(progress) {
  showProgress(progress);
  const states = JSON.stringify(progress.states);
  const before = last;
  last = { states, version: progress.version };
  if (before === null || before.version === progress.version) return;
  if (before.states !== states || Date.now() - loadedAt > RELOAD_MS) {
    loadedAt = Date.now() + Math.random() * RELOAD_MS / 4; // spread the reloads of many viewers
    read({ summary: true });
  }
}

showFilters();
await read({ summary: true });
let soon = null;
document.addEventListener("figureseen", () => { clearTimeout(soon); soon = setTimeout(follow, 300); });
follow();
