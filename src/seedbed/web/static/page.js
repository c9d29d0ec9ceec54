// Shared by all pages: elements, requests, streams, charts, the URL query, and a status line.
//
//   el("a", { href: "/run/3f2a", class: "id" }, "3f2a")      every string is set as text, never as markup
//   await drawChart(place, spec)                             themed, redrawn when the theme changes, no layout shift

import { themes, vega } from "/static/themes.js";
import { panelRows, rowsByPanel, withRows, withRowsByPanel } from "/static/rows.js";

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

/** The first element that matches a selector. */
export const find = (selector, within = document) => within.querySelector(selector);

/** A number as text: 12,345 · 0.0123 · 1.2e-7. */
export function number(value, digits = 4) {
  if (typeof value !== "number") return value === null || value === undefined ? "–" : String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
}

/** A note as a sentence: with a capital letter and a full stop. */
export const sentenceOf = (note) => note && `${note[0].toUpperCase()}${note.slice(1)}${/[.!?]$/.test(note) ? "" : "."}`;

/** A duration as text: 42 s · 3 min · 2 h 5 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// ---- status line ----

let clearing;

/** Shows a message in the status line, which screen readers announce; an empty one clears it. */
export function notify(message, kind = "info") {
  const line = find("#status");
  clearTimeout(clearing);
  line.textContent = message;
  line.dataset.kind = kind;
  line.hidden = !message;
  if (message && kind === "info") clearing = setTimeout(() => notify(""), 6000);
}

// ---- requests ----

/** The JSON of a response; throws an Error with the server's message if the request failed. */
export async function readResponse(response) {
  if (response.ok) return response.status === 204 ? null : response.json();
  const text = await response.text();
  let message = text.trim();
  try { message = JSON.parse(text).error ?? message; } catch { /* plain text */ }
  throw new Error(message || `the server readResponse ${response.status}`);
}

/** The error when the server cannot be reached. */
export const connectionError = () => new Error("the server does not answer; start it again with: seedbed serve");

/** The JSON at a URL; throws an Error with the server's message. */
export const get = (url, options = {}) => fetch(url, options).catch((error) => {
  throw error.name === "AbortError" ? error : connectionError();
}).then(readResponse);

/** Posts a JSON body; returns the JSON response. */
export const post = (url, body, options = {}) => fetch(url, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), ...options,
}).catch((error) => { throw error.name === "AbortError" ? error : connectionError(); }).then(readResponse);

/**
 * Listens to server-sent events with a handler per event name, or one for `update`; returns a function that stops it.
 * A hidden tab closes its stream and reopens it when visible: a browser allows six connections per server.
 */
export function stream(url, handlers) {
  const on = typeof handlers === "function" ? { update: handlers } : handlers;
  let source = null;
  let lost = false;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(url);
    for (const [name, handler] of Object.entries(on)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    }
    source.onopen = () => { if (lost) notify("reconnected"); lost = false; };
    source.onerror = async () => {
      if (source?.readyState === EventSource.CLOSED) {
        close();
        const refusal = await refusalOf(url);
        if (refusal) { notify(refusal, "error"); return; }
      }
      if (!lost) notify("connection lost; the page may be out of date. If the server has stopped: seedbed serve", "error");
      lost = true;
    };
  };
  const close = () => { source?.close(); source = null; };
  const onVisibility = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", onVisibility);
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
  return () => { close(); document.removeEventListener("visibilitychange", onVisibility); removeEventListener("pageshow", open); };
}

/** The server's message if it refuses a request; empty if it answers, or cannot be reached. */
async function refusalOf(url) {
  const stop = new AbortController();
  const response = await fetch(url, { signal: stop.signal }).catch(() => null);
  const message = response && !response.ok ? await readResponse(response).catch((error) => error.message) : "";
  stop.abort();
  return message;
}

/** The path of a study's page. */
export const studyPath = (name) => `/study/${name.split("/").map(encodeURIComponent).join("/")}`;

// ---- view state in the URL ----

export const view = {
  /** A value of the query string, or a default. */
  get: (name, otherwise = "") => new URLSearchParams(location.search).get(name) ?? otherwise,
  all: (name) => new URLSearchParams(location.search).getAll(name),
  /** Changes values without reloading; null or "" removes one, a list sets several. */
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
  /** The query string with its question mark, or an empty string. */
  query: () => location.search,
};

// ---- charts ----

let program;
const drawn = new Map(); // element → its chart

/** Vega-Embed, loaded once: with the first chart, or earlier if a page knows that one will be drawn. */
export function embedder() {
  program ??= new Promise((done, failed) => {
    document.head.append(el("script", {
      src: vega, onload: () => done(window.vegaEmbed), onerror: () => failed(new Error("the chart library did not load")),
    }));
  });
  return program;
}

const tip = el("div", { id: "tip", role: "tooltip", hidden: true });

/** The tooltip of a mark that says what its row says; an expression would be evaluated for every point of a line. */
export const LINE_TOOLTIP = "line";

/** A text-only tooltip: names and values come from studies and are never markup. */
function showTip(_handler, event, item, value) {
  if (value === null || value === undefined || value === "") { tip.hidden = true; return; }
  if (!tip.isConnected) document.body.append(tip);
  const found = value === LINE_TOOLTIP ? { line: item.datum.name, n: item.datum.n } : value;
  const rows = typeof found === "object" ? Object.entries(found) : [["", found]];
  tip.replaceChildren(...rows.map(([name, one]) => el("div", {}, name && el("span", { class: "faint" }, `${name} `), el("bdi", {}, String(one)))));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

/** The height of a chart before it is drawn. */
export function heightOf(spec) {
  const panels = spec.concat ?? spec.vconcat ?? [spec];
  const heights = panels.map((panel) => (typeof panel.height === "number" ? panel.height : 260));
  const columns = spec.concat ? spec.columns ?? panels.length : 1;
  const rows = Math.ceil(panels.length / Math.max(1, columns));
  return rows * (Math.max(...heights) + 62) + (spec.title ? 40 : 10);
}

/** Is it a line chart whose panels are as wide as the page gives them? The bundle's `fitWidth` has sized it. */
const isFluid = (spec) => Boolean(spec.datasets?.lines && spec.concat?.every((panel) => typeof panel.width === "number"));

/** Widens or narrows the drawn panels, so that the whole chart is as wide as the page. */
async function refit({ view: vega, vgSpec }, canvas, spec, available) {
  const spare = available - canvas.width / (devicePixelRatio || 1);
  if (!isFluid(spec) || !available || (spare >= 0 && spare < 0.1 * available)) return;
  const columns = Math.max(1, spec.columns ?? 1);
  const width = Math.max(110, Math.floor(spec.concat[0].width + spare / columns) - 1);
  const sizes = [...vgSpec.signals, { name: "width", value: vgSpec.width }];
  for (const { name, value } of sizes) if (/(^|_)(width|childWidth)$/.test(name) && value === spec.concat[0].width) vega.signal(name, width);
  await vega.resize().runAsync(); // the canvas holds the legend beside the wider panels
}

/**
 * Draws a Vega-Lite spec without a config into an element, with the current theme; returns the Vega view. Also takes a
 * function that returns a spec, which is called again when the theme or the width of the page changes.
 * The new chart is rendered off-screen and swapped in, so that nothing flickers or shifts.
 */
export async function drawChart(place, given, options = {}) {
  const turn = (drawn.get(place)?.turn ?? 0) + 1;
  const available = place.clientWidth;
  const natural = typeof given === "function" ? given() : given;
  drawn.set(place, { ...drawn.get(place), given, options, turn, available });
  if (!place.style.minHeight) place.style.minHeight = `${options.height ?? heightOf(natural)}px`;
  place.setAttribute("aria-busy", "true");
  const embed = await embedder();
  const spec = window.fitWidth(natural, available);
  const offscreen = el("div", { class: "drawing" });
  const made = await embed(offscreen, withRowsByPanel(withRows(spec)), {
    mode: "vega-lite", config: { ...themes[document.documentElement.dataset.theme], aria: false }, renderer: "canvas",
    ast: true, actions: false, defaultStyle: false, tooltip: showTip,
  });
  await refit(made, offscreen.querySelector("canvas"), spec, available);
  const now = drawn.get(place);
  if (now?.turn !== turn) { made.finalize(); return now?.made?.view ?? null; } // superseded by a newer call
  place.replaceChildren(offscreen);
  place.style.minHeight = `${Math.max(parseFloat(place.style.minHeight), offscreen.offsetHeight)}px`; // never shrinks: no layout shift
  place.setAttribute("aria-busy", "false");
  place.classList.add("drawn");
  now.made?.finalize();
  now.made = made;
  return made.view;
}

/** Replaces the rows of a drawn line chart by other rows of the same lines. */
export async function replaceRows(vega, spec, rows) {
  rowsByPanel(spec, rows).forEach((some, index) => vega.data(panelRows(index), some));
  await vega.runAsync();
}

/** Draws every chart again for which something has changed. */
function redrawAll(changed) {
  for (const [place, { given, options, made, available }] of drawn) {
    if (!place.isConnected) { made?.finalize(); drawn.delete(place); } else if (changed(place, available)) {
      place.style.minHeight = "";
      drawChart(place, given, options);
    }
  }
}

let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => redrawAll((place, available) => place.clientWidth && Math.abs(place.clientWidth - available) > 8), 200);
});
document.addEventListener("themechange", () => redrawAll(() => true));

// ---- page frame ----

const choice = find("#theme");
choice.value = document.documentElement.dataset.choice;
choice.addEventListener("change", () => document.dispatchEvent(new CustomEvent("themechosen", { detail: choice.value })));
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") { event.preventDefault(); return; }
  notify(event.reason?.message ?? String(event.reason), "error");
});
