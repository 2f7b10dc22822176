// The plan and its reasons, how far loading is, and another model to serve.

import { at, h, show, tell } from "./dom.js";
import { post } from "./server.js";
import { bytes } from "./words.js";

/** Shows the plan of a state. */
export function showPlan(state) {
  const loads = state.state === "serving" ? null : state.loading;
  show(at("loading"), [state.state, loads], () => loading(state.state, loads));
  show(at("stages"), state.plan, () => stages(state.plan));
  const names = state.models.map((model) => [model.name, model.size_bytes, model.loaded]);
  show(at("model"), names, () => choices(state.models));
}

/** Has the form switch models. */
export function listenToSwitch() {
  at("switch").addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = event.submitter ?? event.target.querySelector("button");
    const model = at("model").value;
    if (!model) return;
    button.disabled = true;
    tell(at("switch-told"), `Bringing up ${model} …`);
    try {
      await post("/page/api/model", { model });
      tell(at("switch-told"), `${model} is served.`);
    } catch (error) {
      tell(at("switch-told"), error.message);
    } finally {
      button.disabled = false;
    }
  });
}

function loading(state, loads) {
  if (state === "serving") return [];
  const lines = [h("p", {}, loads?.text || WORDS[state] || state)];
  for (const node of loads?.nodes ?? []) {
    const told = `${node.node}: ${bytes(node.done_bytes)} of ${bytes(node.total_bytes)}`;
    lines.push(
      h("label", {}, told, h("progress", { max: Math.max(1, node.total_bytes), value: node.done_bytes })),
    );
  }
  return lines;
}

const WORDS = {
  absent: "No model is in service.",
  planning: "Who holds what is being decided.",
  loading: "The nodes load their layers.",
  lost: "The pipeline is lost, and another one is being built.",
  leaving: "The model leaves.",
};

function stages(plan) {
  if (!plan) return [];
  const head = `${plan.model}: ${plan.layers} layers, weights ${plan.weights}, context of ${plan.context_tokens} tokens.`;
  const rows = plan.pipelines
    .flatMap((pipeline) => pipeline.stages)
    .map((stage) =>
      h(
        "li",
        { dir: "auto" },
        h("strong", {}, stage.node),
        ` has layers ${stage.first_layer} to ${stage.last_layer} on ${stage.devices.join(", ")}`,
        stage.why ? `: ${stage.why}` : ".",
      ),
    );
  const notes = plan.notes.map((note) => h("li", { class: "hint", dir: "auto" }, note));
  return [h("p", {}, head), h("ul", {}, ...rows, ...notes)];
}

function choices(models) {
  if (!models.length) return [h("option", { value: "" }, "No node has a model in its folder.")];
  return models.map((model) =>
    h(
      "option",
      { value: model.name, selected: model.loaded },
      `${model.name} (${bytes(model.size_bytes)})${model.loaded ? ", served now" : ""}`,
    ),
  );
}
