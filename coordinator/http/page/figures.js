// How the work goes: figures of the last minutes as small plots, and what holds it up in words.

import { at, h, s, show, tell } from "./dom.js";
import { number, percent, seconds } from "./words.js";

const MOST = 150; // samples, five minutes
const EVERY_S = 2;
const WIDTH = 150;
const HEIGHT = 40;

const PLOTS = [
  ["Tokens a second", (sample) => sample.tokens_per_s, number],
  ["Streams", (sample) => sample.streams, number],
  ["Waiting", (sample) => sample.waiting, number],
  ["Time to first token, median", (sample) => sample.first_token_s, seconds],
  ["Gap between tokens, median", (sample) => sample.gap_s, seconds],
];

let samples = [];
const drawn = new Map();

/** Takes the figures of the last minutes. */
export function takeHistory(history) {
  samples = history;
}

/** Takes the newest figures, and shows all. */
export function showFigures(state) {
  const last = samples.at(-1);
  if (!last || state.sample.time - last.time >= EVERY_S) samples.push(state.sample);
  samples = samples.slice(-MOST);
  show(at("diagnosis"), state.stats?.diagnosis ?? [], () =>
    (state.stats?.diagnosis ?? ["No model is in service."]).map((line) => h("li", { dir: "auto" }, line)),
  );
  for (const [name, of, words] of PLOTS) {
    draw(at("plots"), name, [samples.map(of)], words(of(state.sample) ?? null));
  }
  const stages = state.sample.stages ?? [];
  stages.forEach((stage, index) => {
    const lines = ["busy", "waiting", "bubble"].map((kind) => samples.map((sample) => sample.stages?.[index]?.[kind]));
    const told = `busy ${percent(stage.busy)}, waits ${percent(stage.waiting)}, bubble ${percent(stage.bubble)}`;
    draw(at("shares"), nameOf(stage, index), lines, told, 1);
  });
  for (const [key, plot] of drawn) {
    const isOld = plot.place === at("shares") && !stages.some((stage, index) => key === nameOf(stage, index));
    if (isOld) {
      plot.element.remove();
      drawn.delete(key);
    }
  }
}

function nameOf(stage, index) {
  return `Stage ${index}, ${stage.node}`;
}

function draw(place, name, lines, told, most = 0) {
  const plot = drawn.get(name) ?? begun(place, name, lines.length);
  tell(plot.told, told);
  const known = lines.flat().filter((value) => typeof value === "number");
  const top = most || Math.max(...known, 1e-9);
  plot.paths.forEach((path, index) => path.setAttribute("d", pathOf(lines[index], top)));
  plot.picture.setAttribute("aria-label", `${name} over the last five minutes, now ${told}`);
}

function begun(place, name, lines) {
  const paths = Array.from({ length: lines }, (_, index) => s("path", { class: ["first", "second", "third"][index] }));
  const picture = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, ...paths);
  const told = h("strong", {});
  const element = h("div", { class: "plot" }, h("span", { class: "hint", dir: "auto" }, name), told, picture);
  place.append(element);
  const plot = { place, element, paths, picture, told };
  drawn.set(name, plot);
  return plot;
}

function pathOf(values, top) {
  const step = WIDTH / (MOST - 1);
  const first = MOST - values.length;
  let path = "";
  let broken = true;
  values.forEach((value, index) => {
    if (typeof value !== "number") {
      broken = true;
      return;
    }
    const x = ((first + index) * step).toFixed(1);
    const y = (HEIGHT - 2 - (HEIGHT - 4) * Math.min(1, value / top)).toFixed(1);
    path += `${broken ? "M" : "L"}${x} ${y}`;
    broken = false;
  });
  return path;
}
