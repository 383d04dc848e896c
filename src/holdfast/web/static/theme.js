// Sets the theme before the first paint. A classic script, so that nothing is painted without it.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("holdfast-theme");
  } catch {
    // Storage can be forbidden; then the system decides.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
