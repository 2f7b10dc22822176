// Light, dark, or as the system has it; kept in this browser.

import { at, tell } from "./dom.js";
import { kept, keep } from "./keeping.js";

const KEY = "layerline.theme";
const THEMES = ["system", "light", "dark"];

/** Has the button change the theme. */
export function listenToTheme() {
  let theme = THEMES.includes(kept(KEY)) ? kept(KEY) : "system";
  wear(theme);
  at("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    keep(KEY, theme);
    wear(theme);
  });
}

function wear(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  tell(at("theme"), `Theme: ${theme === "system" ? "as the system" : theme}`);
}
