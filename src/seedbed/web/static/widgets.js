// Widgets of Compare and Start: download links of a chart or a table, and checkbox chips.

import { el } from "/static/page.js";

/** Download links in several formats; charts use the current theme. */
export function downloads(path, query, kinds) {
  const link = (kind) => {
    const params = new URLSearchParams(query);
    if (["svg", "pdf", "png"].includes(kind)) params.set("theme", document.documentElement.dataset.theme);
    const text = params.toString();
    return el("a", { href: `${path}.${kind}${text ? `?${text}` : ""}`, download: true }, kind === "tex" ? "LaTeX" : kind === "md" ? "Markdown" : kind.toUpperCase());
  };
  return el("p", { class: "downloads noprint faint" }, "Download ", kinds.flatMap((kind, at) => [at ? " · " : "", link(kind)]));
}

export const CHART = ["svg", "pdf", "png"];
export const TABLE = ["csv", "tex", "md"];

/** Choices as checkboxes, one or several of which can be checked. */
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
