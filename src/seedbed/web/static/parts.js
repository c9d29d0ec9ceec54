// Parts that Compare and Start share: links to download a chart or a table, and choices that can be ticked.

import { el } from "/static/page.js";

/** Links to one thing in several forms; charts take the look that is on the screen. */
export function downloads(path, query, kinds) {
  const link = (kind) => {
    const asked = new URLSearchParams(query);
    if (["svg", "pdf", "png"].includes(kind)) asked.set("look", document.documentElement.dataset.theme);
    const text = asked.toString();
    return el("a", { href: `${path}.${kind}${text ? `?${text}` : ""}`, download: true }, kind === "tex" ? "LaTeX" : kind === "md" ? "Markdown" : kind.toUpperCase());
  };
  return el("p", { class: "downloads noprint faint" }, "Download ", kinds.flatMap((kind, at) => [at ? " · " : "", link(kind)]));
}

export const CHART = ["svg", "pdf", "png"];
export const TABLE = ["csv", "tex", "md"];

/** Choices as boxes that can be ticked, one or several. */
export function chips(label, choices, chosen, onchange, { single = false, describedby = null } = {}) {
  const group = el("div", { class: "chips", role: "group", "aria-label": label, "aria-describedby": describedby });
  group.append(...choices.map((choice) => el("label", { class: "chip" },
    el("input", {
      type: "checkbox", value: choice, checked: chosen.includes(choice),
      onchange: (event) => {
        if (single && event.target.checked) for (const other of group.querySelectorAll("input")) other.checked = other === event.target;
        onchange([...group.querySelectorAll("input:checked")].map((box) => box.value));
      },
    }), el("bdi", {}, choice))));
  return group;
}
