// Colour theme: light, dark or the system's. Runs before the first paint, so that the page does not flash.
"use strict";

(() => {
  const NAME = "cordwood.theme";

  function kept() {
    try {
      return localStorage.getItem(NAME) ?? "auto";
    } catch {
      // A browser may block local storage: the choice then lasts for this page load only.
      return "auto";
    }
  }

  function choose(theme) {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem(NAME, theme);
    } catch {
      // The browser blocks local storage, as above.
    }
  }

  document.documentElement.dataset.theme = kept();
  document.addEventListener("DOMContentLoaded", () => {
    const field = document.getElementById("theme");
    field.value = kept();
    field.addEventListener("change", () => choose(field.value));
  });
})();
