// Light, dark, or what the system says. Runs before the page is drawn, so that it never flashes.
"use strict";

(() => {
  const NAME = "cordwood.theme";

  function kept() {
    try {
      return localStorage.getItem(NAME) ?? "auto";
    } catch {
      // A browser may forbid it: then the choice holds for this page only.
      return "auto";
    }
  }

  function choose(theme) {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem(NAME, theme);
    } catch {
      // As above.
    }
  }

  document.documentElement.dataset.theme = kept();
  document.addEventListener("DOMContentLoaded", () => {
    const field = document.getElementById("theme");
    field.value = kept();
    field.addEventListener("change", () => choose(field.value));
  });
})();
