// Sets the theme before the first paint; a classic script, because modules run after parsing.
(() => {
  const stored = (() => { try { return localStorage.getItem("seedbed-theme"); } catch { return null; } })();
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  root.dataset.choice = stored === "light" || stored === "dark" ? stored : "system";
  const apply = () => {
    const theme = root.dataset.choice === "system" ? (dark.matches ? "dark" : "light") : root.dataset.choice;
    if (root.dataset.theme === theme) return;
    root.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("themechange", { detail: theme }));
  };
  apply();
  dark.addEventListener("change", apply);
  document.addEventListener("themechosen", (event) => {
    root.dataset.choice = event.detail;
    try { localStorage.setItem("seedbed-theme", event.detail); } catch { /* storage is disabled */ }
    apply();
  });
})();
