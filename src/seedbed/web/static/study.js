// A study: its answers, figures and configs with the view parameters of the URL, updated live while it trains.

import { duration, el, embedder, find, get, notify, stream, view } from "/static/page.js";
import { Figure } from "/static/figure.js";
import { showConfigs } from "/static/configs.js";
import { tableOf } from "/static/tables.js";

const name = find("#study").dataset.name;
const path = name.split("/").map(encodeURIComponent).join("/");
const CHANNELS = ["colour", "column", "row"];
const FIGURE_FIELDS = [...CHANNELS, "x_scale", "y_scale"]; // they change no numbers
const FIELDS = [...FIGURE_FIELDS, "t_max"];
const RELOAD_MS = 30_000; // between two full reloads while training; curves are updated continuously
const controls = find("#controls");
const figures = [];

// ---- the query: parameters that the server needs, without those that only this page uses ----

function query(more = {}) {
  const params = new URLSearchParams();
  for (const [key, value] of new URLSearchParams(location.search)) if ([...FIELDS, "only"].includes(key)) params.append(key, value);
  for (const [key, value] of Object.entries(more)) params.append(key, value);
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
  info.figures.forEach((title, at) => {
    if (!figures[at]) {
      figures[at] = new Figure(at + 1, title, (number) => request("figure", { number }), (ending) => `/download/study/${path}/figure/${at + 1}.${ending}${query()}`);
      find("#figures").append(figures[at].element);
    }
  });
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
  find("#filters").replaceChildren(...view.all("only").map((filter) => el("button", {
    type: "button", "aria-label": `remove the filter ${filter}`,
    onclick: () => change({ only: view.all("only").filter((other) => other !== filter) }),
  }, filter)));
}

function showAnswers({ answers }) {
  find("#answers").hidden = !answers.length;
  find("#answers ul").replaceChildren(...answers.map((one) => el("li", {},
    el("p", { class: "question-text", dir: "auto" }, one.question), el("p", { class: "sentence", dir: "auto" }, one.sentence),
    one.warning && el("p", { class: "warning", dir: "auto" }, one.warning))));
}

function showTables(found) {
  const files = (number) => el("p", { class: "notes" }, "Download: ", ...["csv", "tex", "md"].flatMap((ending) =>
    [el("a", { href: `/download/study/${path}/table/${number}.${ending}${query()}`, download: "" }, ending.toUpperCase()), " "]));
  find("#tables").replaceChildren(find("#tables-head"), ...found.tables.flatMap((table, at) => [tableOf(table), files(at + 1)]),
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
      if (parts.summary) {
        const [info, answers] = [await request("study"), await request("answers")];
        showSummary(info);
        showAnswers(answers);
      }
      if (first) await figures[0]?.read(prefetched.then(([found]) => found.value ?? Promise.reject(found.reason)));
      else for (const figure of figures) await figure.refresh(); // one by one: the first is visible while others render
      find("#body").hidden = false; // the visible part first and all at once: no layout shift
      if (parts.summary) {
        showConfigs(await request("configs"));
        showTables(await request("tables"));
        find("#below").hidden = false;
      }
      find("#study").dataset.ready = "true";
    } catch (error) {
      notify(error.message, "error");
    } finally {
      loading = null;
      if (reload) { reload = false; read({ summary: true }); }
    }
  })();
  return loading;
}

async function change(changes) {
  view.set(changes, { push: true });
  showFilters();
  for (const figure of figures) figure.invalidate();
  await read({ summary: !Object.keys(changes).every((field) => FIGURE_FIELDS.includes(field)) });
  follow();
}

controls.addEventListener("change", (event) => {
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
  change(Object.fromEntries([...FIELDS, "only", "hide", "sort", "find", "open"].map((field) => [field, ""])));
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
