// The chat: one conversation at a time, its answer as it comes, and what can be done with its turns.

import { Conversations, titleOf } from "./conversations.js";
import { at, h, show } from "./dom.js";
import { chat } from "./server.js";
import { ShownTurn } from "./turns.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];

const conversations = new Conversations();
let model = "";
let running = null; // what stops the answer that comes

/** The model that answers, "" for none. */
export function serve(served) {
  model = served;
  at("send").disabled = !model;
}

/** Has the chat's parts do what they say. */
export function listenToChat() {
  at("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    ask(at("question").value);
  });
  at("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      ask(at("question").value);
    }
  });
  at("stop").addEventListener("click", () => running?.abort());
  at("new").addEventListener("click", () => turnTo(() => conversations.begin()));
  at("forget").addEventListener("click", () => turnTo(() => conversations.forget()));
  at("conversation").addEventListener("change", (event) => turnTo(() => conversations.choose(event.target.value)));
  at("settings").addEventListener("change", keepSettings);
  at("settings").addEventListener("submit", (event) => event.preventDefault());
  turnTo(() => {});
}

function turnTo(change) {
  running?.abort();
  change();
  showChoices();
  showSettings();
  showTurns();
}

function showChoices() {
  const choices = conversations.all.map((each) => [each.id, titleOf(each)]);
  show(at("conversation"), choices, () => choices.map(([id, title]) => h("option", { value: id }, title)));
  at("conversation").value = conversations.current.id;
}

function showTurns() {
  const { turns } = conversations.current;
  at("log").replaceChildren();
  turns.forEach((turn, index) => shown(turn, index));
  at("log").scrollTop = at("log").scrollHeight;
}

function shown(turn, index) {
  const actions =
    turn.role === "user"
      ? { Edit: (own) => own.edit((text) => ask(text, index)) }
      : { "Ask again": () => ask(conversations.current.turns[index - 1].content, index - 1) };
  return new ShownTurn(at("log"), turn, actions);
}

/** Asks, in the place of what was asked at turn `from` if that is given. */
async function ask(text, from = null) {
  const conversation = conversations.current;
  if (!text.trim() || !model) return;
  running?.abort();
  if (from === null) at("question").value = "";
  else conversation.turns.splice(from);
  conversation.turns.push({ role: "user", content: text });
  conversations.keep(conversation);
  const body = bodyOf(conversation);
  const answer = { role: "assistant", content: "", thinking: "" };
  conversation.turns.push(answer);
  showChoices();
  showTurns();
  const element = at("log").lastElementChild;
  element.remove();
  const turn = shown(answer, conversation.turns.length - 1);
  await answered(body, answer, turn);
  conversations.keep(conversation);
}

async function answered(body, answer, turn) {
  const stopping = new AbortController();
  running = stopping;
  at("stop").hidden = false;
  turn.element.setAttribute("aria-busy", "true");
  try {
    const reason = await chat(body, stopping.signal, (delta) => {
      answer.content += delta.content ?? "";
      answer.thinking += delta.reasoning_content ?? "";
      turn.refresh();
    });
    if (reason === "length") answer.failure = "The answer ended at its most tokens.";
  } catch (error) {
    if (error.name !== "AbortError") answer.failure = error.message;
  } finally {
    turn.element.removeAttribute("aria-busy");
    turn.refresh();
    if (running === stopping) {
      running = null;
      at("stop").hidden = true;
    }
  }
}

function bodyOf({ turns, settings }) {
  const system = settings.system?.trim() ? [{ role: "system", content: settings.system }] : [];
  const said = turns.filter(({ role, content }) => role === "user" || content); // an answer that failed is none
  const body = { model, messages: [...system, ...said.map(({ role, content }) => ({ role, content }))] };
  for (const name of NUMBERS) {
    if (typeof settings[name] === "number") body[name] = settings[name];
  }
  if (settings.thinks === false) body.chat_template_kwargs = { enable_thinking: false };
  return body;
}

function keepSettings() {
  const form = at("settings").elements;
  const settings = { system: form.system.value, thinks: form.thinks.checked };
  for (const name of NUMBERS) {
    const value = form[name].valueAsNumber;
    if (Number.isFinite(value)) settings[name] = value;
  }
  conversations.current.settings = settings;
  conversations.keep(conversations.current);
}

function showSettings() {
  const form = at("settings").elements;
  const { settings } = conversations.current;
  form.system.value = settings.system ?? "";
  form.thinks.checked = settings.thinks !== false;
  for (const name of NUMBERS) form[name].value = settings[name] ?? "";
}
