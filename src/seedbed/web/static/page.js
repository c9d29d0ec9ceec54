// What all views share: elements, requests, streams, charts, the address, and a line that says what happened.
//
//   el("a", { href: "/run/3f2a", class: "id" }, "3f2a")      every string is set as text, never as markup
//   await drawChart(place, spec)                             themed, redrawn when the theme changes, nothing jumps

import { looks, vega } from "/static/looks.js";
import { withRows } from "/static/rows.js";

// ---- elements ----

/** An element with attributes and children; a child is an element or a text, an attribute `on…` is a listener. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** The first element that a selector finds. */
export const find = (selector, within = document) => within.querySelector(selector);

/** The text of a number for a reader: 12,345 · 0.0123 · 1.2e-7. */
export function number(value, digits = 4) {
  if (typeof value !== "number") return value === null || value === undefined ? "–" : String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
}

/** A time for a reader: 42 s · 3 min · 2 h 5 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// ---- saying what happened ----

let silence;

/** Says a sentence in the status line, which screen readers read out; an empty one clears it. */
export function say(message, kind = "info") {
  const line = find("#said");
  clearTimeout(silence);
  line.textContent = message;
  line.dataset.kind = kind;
  line.hidden = !message;
  if (message && kind === "info") silence = setTimeout(() => say(""), 6000);
}

// ---- requests ----

/** The JSON of a response; throws an Error with the server's sentence where there is none. */
export async function answered(response) {
  if (response.ok) return response.status === 204 ? null : response.json();
  const text = await response.text();
  let sentence = text.trim();
  try { sentence = JSON.parse(text).error ?? sentence; } catch { /* a plain sentence */ }
  throw new Error(sentence || `the server answered ${response.status}`);
}

/** What is said when nobody listens any more. */
export const gone = () => new Error("the server does not answer; start it again with: seedbed serve");

/** The JSON at an address; throws an Error with the server's sentence. */
export const get = (url, options = {}) => fetch(url, options).catch((error) => {
  throw error.name === "AbortError" ? error : gone();
}).then(answered);

/** The JSON answer to a JSON body. */
export const post = (url, body, options = {}) => fetch(url, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), ...options,
}).catch((error) => { throw error.name === "AbortError" ? error : gone(); }).then(answered);

/**
 * Follows server-sent events with a handler by event name, or one for `news`; returns a function that ends it.
 * A hidden tab lets go of its stream and takes it up again when it is seen: a browser has six for each server.
 */
export function stream(url, handlers) {
  const on = typeof handlers === "function" ? { news: handlers } : handlers;
  let source = null;
  let lost = false;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(url);
    for (const [name, handler] of Object.entries(on)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    }
    source.onopen = () => { if (lost) say("connected again"); lost = false; };
    source.onerror = () => {
      if (source?.readyState === EventSource.CLOSED) close();
      if (!lost) say("the connection is lost; what is shown may be old. If the server has ended: seedbed serve", "error");
      lost = true;
    };
  };
  const close = () => { source?.close(); source = null; };
  const seen = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", seen);
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
  return () => { close(); document.removeEventListener("visibilitychange", seen); removeEventListener("pageshow", open); };
}

// ---- the address holds the view ----

export const view = {
  /** A value of the query string, or what is given instead. */
  get: (name, otherwise = "") => new URLSearchParams(location.search).get(name) ?? otherwise,
  all: (name) => new URLSearchParams(location.search).getAll(name),
  /** Changes values without reloading; null or "" takes one out, a list gives several. */
  set(changes, { push = false } = {}) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      query.delete(name);
      const values = Array.isArray(value) ? value : [value];
      for (const one of values) if (one !== null && one !== undefined && one !== "") query.append(name, one);
    }
    const text = query.toString();
    history[push ? "pushState" : "replaceState"](null, "", text ? `?${text}` : location.pathname);
  },
  /** The query string as it is, with its question mark, or nothing. */
  query: () => location.search,
};

// ---- charts ----

let program;
const drawn = new Map(); // place → what is drawn there

/** The chart program, loaded once: when the first chart is drawn, or before, where a page knows that one will be. */
export function embedder() {
  program ??= new Promise((done, failed) => {
    document.head.append(el("script", {
      src: vega, onload: () => done(window.vegaEmbed), onerror: () => failed(new Error("the chart program did not load")),
    }));
  });
  return program;
}

const tip = el("div", { id: "tip", role: "tooltip", hidden: true });

/** A tooltip of texts: names and values come from studies, and are never markup. */
function showTip(_handler, event, _item, value) {
  if (value === null || value === undefined || value === "") { tip.hidden = true; return; }
  if (!tip.isConnected) document.body.append(tip);
  const rows = typeof value === "object" ? Object.entries(value) : [["", value]];
  tip.replaceChildren(...rows.map(([name, one]) => el("div", {}, name && el("span", { class: "faint" }, `${name} `), el("bdi", {}, String(one)))));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

/** How high a chart will be, before it is drawn. */
export function heightOf(spec) {
  const panels = spec.concat ?? spec.vconcat ?? [spec];
  const heights = panels.map((panel) => (typeof panel.height === "number" ? panel.height : 260));
  const columns = spec.concat ? spec.columns ?? panels.length : 1;
  const rows = Math.ceil(panels.length / Math.max(1, columns));
  return rows * (Math.max(...heights) + 62) + (spec.title ? 40 : 10);
}

/**
 * Draws a Vega-Lite spec without a look into an element, with the reader's theme, and gives the Vega view. Instead of a
 * spec it takes a function that gives one, which is asked again when the theme changes.
 * The new picture is made aside and put in the old one's place, so that nothing flickers or jumps.
 */
export async function drawChart(place, given, options = {}) {
  const turn = (drawn.get(place)?.turn ?? 0) + 1;
  const spec = typeof given === "function" ? given() : given;
  drawn.set(place, { ...drawn.get(place), given, options, turn });
  if (!place.style.minHeight) place.style.minHeight = `${options.height ?? heightOf(spec)}px`;
  place.setAttribute("aria-busy", "true");
  const embed = await embedder();
  const aside = el("div", { class: "drawing" });
  const made = await embed(aside, withRows(spec), {
    mode: "vega-lite", config: looks[document.documentElement.dataset.theme], renderer: "canvas", ast: true,
    actions: false, defaultStyle: false, tooltip: showTip,
  });
  const now = drawn.get(place);
  if (now?.turn !== turn) { made.finalize(); return now?.made?.view ?? null; } // a newer one is on its way
  place.replaceChildren(aside);
  place.style.minHeight = `${Math.max(parseFloat(place.style.minHeight), aside.offsetHeight)}px`; // never less: nothing jumps
  place.setAttribute("aria-busy", "false");
  place.classList.add("drawn");
  now.made?.finalize();
  now.made = made;
  return made.view;
}

document.addEventListener("themechange", () => {
  for (const [place, { given, options }] of drawn) {
    if (place.isConnected) drawChart(place, given, options); else { drawn.get(place).made?.finalize(); drawn.delete(place); }
  }
});

// ---- the frame of every page ----

const choice = find("#theme");
choice.value = document.documentElement.dataset.choice;
choice.addEventListener("change", () => document.dispatchEvent(new CustomEvent("themechosen", { detail: choice.value })));
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") { event.preventDefault(); return; }
  say(event.reason?.message ?? String(event.reason), "error");
});
