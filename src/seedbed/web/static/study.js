// A study: its answers, figures and points as the address asks for them; they grow while it trains.

import { duration, el, embedder, find, get, say, stream, view } from "/static/page.js";
import { Figure } from "/static/figure.js";
import { showPoints } from "/static/points.js";
import { tableOf } from "/static/tables.js";

const name = find("#study").dataset.name;
const path = name.split("/").map(encodeURIComponent).join("/");
const CHANNELS = ["colour", "column", "row"];
const OF_FIGURES = [...CHANNELS, "x_scale", "y_scale"]; // what changes no number
const FIELDS = [...OF_FIGURES, "t_max"];
const SLOW = 30_000; // milliseconds between two readings of all there is while training; curves grow all the time
const controls = find("#controls");
const figures = [];

// ---- the query: what the server is asked for, without what only this page uses ----

function query(more = {}) {
  const asked = new URLSearchParams();
  for (const [key, value] of new URLSearchParams(location.search)) if ([...FIELDS, "only"].includes(key)) asked.append(key, value);
  for (const [key, value] of Object.entries(more)) asked.append(key, value);
  const text = asked.toString();
  return text ? `?${text}` : "";
}

const ask = (part, more = {}) => get(`/api/${part}/${path}${query(more)}`);

// ---- words ----

function showWords(told) {
  find("#state").textContent = told.state;
  find("#warnings").replaceChildren(...told.warnings.map((warning) => el("p", { class: "warning", dir: "auto" }, warning)));
  fillChoices(told.dials);
  find("#again").replaceChildren(find("#again-head"), el("pre", {}, el("code", {}, told.commands.join("\n"))),
    el("p", { class: "faint" }, "The study as it was run, every setting written out, is under Tables."));
  while (figures.length > told.figures.length) figures.pop().remove();
  told.figures.forEach((title, place) => {
    if (!figures[place]) {
      figures[place] = new Figure(place + 1, title, (number) => ask("figure", { number }), (ending) => `/download/study/${path}/figure/${place + 1}.${ending}${query()}`);
      find("#figures").append(figures[place].element);
    }
  });
}

function fillChoices(dials) {
  for (const channel of CHANNELS) {
    const select = controls.elements[channel];
    const wanted = view.get(channel);
    select.replaceChildren(el("option", { value: "" }, "as declared"), el("option", { value: "none" }, "none"),
      ...dials.map((dial) => el("option", { value: dial.name, title: dial.name }, dial.label)));
    select.value = wanted;
    if (select.selectedIndex < 0) select.append(el("option", { value: wanted, selected: true }, wanted));
  }
  const only = find("#only");
  only.replaceChildren(el("option", { value: "" }, "choose a value …"), ...dials.map((dial) => el("optgroup", { label: dial.label },
    ...dial.values.slice(0, 200).map(({ text, word }) => el("option", { value: `${dial.key}=${word}` }, `${dial.label} = ${text}`)))));
}

// ---- filters: one word a dial, with commas between the values that it may have; seeds are a list ----

const partsOf = (word) => {
  const [key, text] = [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)];
  return [key, (key === "seeds" ? text.replace(/^\[|\]$/g, "") : text).split(/,(?![^[]*\])/)];
};
const wordOf = (key, values) => (key === "seeds" ? `seeds=[${values.join(",")}]` : `${key}=${values.join(",")}`);

function withWord(words, word) {
  const found = new Map(words.map(partsOf));
  const [key, values] = partsOf(word);
  found.set(key, [...new Set([...(found.get(key) ?? []), ...values])]);
  return [...found].map(([name_, several]) => wordOf(name_, several));
}

function showChosen() {
  for (const field of FIELDS) controls.elements[field].value = view.get(field);
  find("#chosen").replaceChildren(...view.all("only").map((word) => el("button", {
    type: "button", "aria-label": `remove the filter ${word}`,
    onclick: () => change({ only: view.all("only").filter((other) => other !== word) }),
  }, word)));
}

function showAnswers({ answers }) {
  find("#answers").hidden = !answers.length;
  find("#answers ul").replaceChildren(...answers.map((one) => el("li", {},
    el("p", { class: "asked", dir: "auto" }, one.asked), el("p", { class: "said", dir: "auto" }, one.sentence),
    one.warning && el("p", { class: "warning", dir: "auto" }, one.warning))));
}

function showTables(found) {
  const files = (number) => el("p", { class: "notes" }, "Download: ", ...["csv", "tex", "md"].flatMap((ending) =>
    [el("a", { href: `/download/study/${path}/table/${number}.${ending}${query()}`, download: "" }, ending.toUpperCase()), " "]));
  find("#tables").replaceChildren(find("#tables-head"), ...found.tables.flatMap((table, place) => [tableOf(table), files(place + 1)]),
    ...found.facts.map((table) => el("details", {}, el("summary", {}, table.title), tableOf({ ...table, title: "" }))),
    el("details", {}, el("summary", {}, "The study as it was run"), el("pre", {}, el("code", {}, found.text))));
}

// ---- reading it all ----

let reading = null;
let again = false;

/** Reads what is shown; what is asked for while it reads is read once more afterwards. */
async function read(parts) {
  if (reading) { again = true; return reading; }
  reading = (async () => {
    try {
      const first = find("#body").hidden;
      const ahead = first && Promise.allSettled([ask("figure", { number: 1 }), embedder()]); // while words are on their way
      if (parts.words) {
        const [told, answers] = [await ask("study"), await ask("answers")];
        showWords(told);
        showAnswers(answers);
      }
      if (first) await figures[0]?.read(ahead.then(([found]) => found.value ?? Promise.reject(found.reason)));
      else for (const figure of figures) await figure.refresh(); // one by one: the first is seen while others are made
      find("#body").hidden = false; // what is seen first comes first, and at once, so that nothing moves while it is read
      if (parts.words) {
        showPoints(await ask("points"));
        showTables(await ask("tables"));
        find("#below").hidden = false;
      }
      find("#study").dataset.ready = "true";
    } catch (error) {
      say(error.message, "error");
    } finally {
      reading = null;
      if (again) { again = false; read({ words: true }); }
    }
  })();
  return reading;
}

async function change(changes) {
  view.set(changes, { push: true });
  showChosen();
  for (const figure of figures) figure.forget();
  await read({ words: !Object.keys(changes).every((field) => OF_FIGURES.includes(field)) });
  follow();
}

controls.addEventListener("change", (event) => {
  if (event.target.id === "only") {
    const word = event.target.value;
    if (word) change({ only: withWord(view.all("only"), word) });
  } else change({ [event.target.name]: event.target.value });
});
controls.addEventListener("submit", (event) => event.preventDefault());
controls.addEventListener("reset", (event) => {
  event.preventDefault();
  change(Object.fromEntries([...FIELDS, "only", "hide", "sort", "find", "open"].map((field) => [field, ""])));
});
addEventListener("popstate", () => { showChosen(); for (const figure of figures) figure.forget(); read({ words: true }); });

// ---- while it trains ----

let last = null; // what was told last
let readAll = Date.now();

function showProgress(progress) {
  const share = progress.asked ? progress.done / progress.asked : 0;
  const track = find("#track");
  track.firstElementChild.style.width = `${(100 * share).toFixed(1)}%`;
  track.dataset.state = progress.states.running ? "running" : "";
  track.setAttribute("aria-valuenow", Math.round(100 * share));
  track.hidden = progress.asked === null;
  find("#left").textContent = progress.seconds_left !== null ? `${Math.floor(100 * share)} % · ${duration(progress.seconds_left)} left` : progress.asked && share < 1 ? `${Math.floor(100 * share)} %` : "";
}

let following = null;
let looking = "";

/** Follows the study, and the figures that are on the screen. */
function follow() {
  const seen = figures.filter((figure) => figure.visible).map((figure) => figure.number).slice(0, 4).join(",");
  const address = `/api/live/study/${path}${query(seen ? { figures: seen } : {})}`;
  if (address === looking) return;
  looking = address;
  following?.();
  following = stream(address, {
    news,
    rows: (found) => figures[found.number - 1]?.grow(found),
    gone: () => say("this study is not in the store any more; what is shown is what it was", "error"),
    trouble: (sentence) => say(sentence, "error"),
  });
}

function news(progress) {
  showProgress(progress);
  const states = JSON.stringify(progress.states);
  const before = last;
  last = { states, version: progress.version };
  if (before === null || before.version === progress.version) return;
  if (before.states !== states || Date.now() - readAll > SLOW) {
    readAll = Date.now() + Math.random() * SLOW / 4; // many viewers do not come all at once
    read({ words: true });
  }
}

showChosen();
await read({ words: true });
let soon = null;
document.addEventListener("figureseen", () => { clearTimeout(soon); soon = setTimeout(follow, 300); });
follow();
