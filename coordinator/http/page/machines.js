// The machines as a picture: the pipeline in order with the links between, and the other nodes.

import { at, h, show } from "./dom.js";
import { bytes, number, seconds } from "./words.js";

/** Shows the machines of a state. */
export function showMachines(state) {
  const stages = state.plan?.pipelines.flatMap((pipeline) => pipeline.stages) ?? [];
  const byName = new Map(state.nodes.map((node) => [node.name, node]));
  const links = state.stats?.recent.links ?? [];
  const busy = (state.stats?.recent.tokens_per_s ?? 0) > 0 && (state.stats?.steps_in_flight ?? 0) > 0;
  const chain = stages.map((stage) => ({ stage: stageView(stage), node: nodeView(byName.get(stage.node), stage) }));
  const wires = links.map((link) => linkView(link, state.stats.recent));
  const lost = state.nodes.filter((node) => node.lost && !stages.some((stage) => stage.node === node.name));
  show(at("pipeline"), [chain, wires, busy], () => picture(chain, wires, busy));
  const others = state.nodes.filter((node) => !lost.includes(node) && !stages.some((stage) => stage.node === node.name));
  const views = [...lost, ...others].map((node) => nodeView(node, null));
  show(at("others"), [views, stages.length], () => otherMachines(views, stages.length));
}

function stageView(stage) {
  return {
    name: stage.node,
    layers: `layers ${stage.first_layer} to ${stage.last_layer}`,
    weights: stage.weights_bytes,
    kv: stage.kv_bytes,
    workspace: stage.workspace_bytes,
    budget: stage.budget_bytes,
  };
}

function nodeView(node, stage) {
  if (!node) return { name: stage.node, lost: true, unusable: "it was not found", devices: [] };
  return {
    name: node.name,
    address: node.address,
    lost: node.lost,
    unusable: node.unusable,
    devices: node.devices.map((device) => `${device.device}: ${device.name}, ${bytes(device.total_bytes)}`),
    budget: node.devices.reduce((sum, device) => sum + device.budget_bytes, 0),
    models: node.models,
  };
}

function linkView(link, recent) {
  const pace = recent.period_s > 0 ? link.payload_bytes / recent.period_s : 0;
  return {
    between: `${link.sender} → ${link.receiver}`,
    delay: link.frames ? seconds(link.wire_s) : "–",
    pace: link.frames ? `${bytes(pace)}/s` : "nothing sent",
  };
}

function picture(chain, wires, busy) {
  const parts = [];
  chain.forEach(({ stage, node }, index) => {
    if (wires[index]) parts.push(wire(wires[index], busy));
    parts.push(machine(node, stage));
  });
  if (chain.length && wires[chain.length]) parts.push(wire(wires[chain.length], busy));
  return parts.length ? parts : [h("li", { class: "hint" }, "No model is in service.")];
}

function wire(link, busy) {
  const label = `${link.between}: delay ${link.delay}, ${link.pace}`;
  return h(
    "li",
    { class: busy ? "link busy" : "link", "aria-label": label },
    h("span", { dir: "auto" }, link.between),
    h("span", { class: "wire", "aria-hidden": "true" }),
    h("span", {}, link.delay),
    h("span", {}, link.pace),
  );
}

function machine(node, stage) {
  const state = node.lost ? h("strong", { class: "bad" }, "lost") : null;
  return h(
    "li",
    { class: node.lost ? "machine lost" : "machine", "data-node": node.name },
    h("h3", { dir: "auto" }, node.name, node.lost ? " " : "", state),
    stage ? h("p", {}, stage.layers) : null,
    ...node.devices.map((device) => h("p", { class: "hint" }, device)),
    stage ? memory(stage) : null,
    node.unusable ? h("p", { class: "bad", dir: "auto" }, `Cannot be used: ${node.unusable}.`) : null,
  );
}

function memory(stage) {
  const free = Math.max(0, stage.budget - stage.weights - stage.kv - stage.workspace);
  const words =
    `weights ${bytes(stage.weights)}, keys and values ${bytes(stage.kv)}, ` +
    `work ${bytes(stage.workspace)}, free ${bytes(free)}`;
  const bar = h("div", { class: "memory", role: "img", "aria-label": words });
  for (const [kind, size] of [["weights", stage.weights], ["kv", stage.kv], ["work", stage.workspace]]) {
    const part = h("span", { class: kind });
    part.style.width = `${(100 * size) / Math.max(1, stage.budget)}%`;
    bar.append(part);
  }
  return h("div", {}, bar, h("p", { class: "hint" }, words));
}

function otherMachines(views, stages) {
  if (!views.length) return stages ? [] : [h("p", { class: "hint" }, "No node was found yet.")];
  return [
    h("h3", {}, stages ? "Other machines" : "Machines that were found"),
    h("ol", { class: "pipeline" }, ...views.map((view) => other(view))),
  ];
}

function other(view) {
  const card = machine(view, null);
  if (view.lost || view.unusable) return card;
  card.append(h("p", { class: "hint" }, `Free for models: ${bytes(view.budget)}; models here: ${number(view.models)}.`));
  return card;
}
