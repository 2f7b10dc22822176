// The page: follows the coordinator, and shows each part.

import { listenToChat, serve } from "./chat.js";
import { at, copies, tell } from "./dom.js";
import { showFigures, takeHistory } from "./figures.js";
import { showMachines } from "./machines.js";
import { listenToSwitch, showPlan } from "./plan.js";
import { showRequests } from "./requests.js";
import { follow } from "./server.js";
import { listenToTheme } from "./theme.js";

const STATES = {
  absent: "no model is in service",
  planning: "planning",
  loading: "loading",
  serving: "serving",
  lost: "the pipeline is lost, and another one is being built",
  leaving: "the model leaves",
};

function shown(state) {
  const model = state.model ? `${state.model}: ` : "";
  tell(at("served"), `${state.coordinator.name}, layerline ${state.coordinator.version}. ${model}${STATES[state.state]}.`);
  document.title = state.model ? `${state.model} · layerline` : "layerline";
  serve(state.model);
  showMachines(state);
  showPlan(state);
  showFigures(state);
  showRequests(state);
}

listenToTheme();
listenToSwitch();
listenToChat();
for (const button of document.querySelectorAll(".copy")) copies(button, button.dataset.text);
follow({
  history: takeHistory,
  state: shown,
  lost: () => tell(at("served"), "The coordinator does not answer; trying again …"),
});
