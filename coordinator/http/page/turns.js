// The turns of a conversation as elements, which change while an answer comes.

import { copies, h } from "./dom.js";
import { markdown } from "./markdown.js";

/** A turn that is shown in `log`; `actions` are what can be done with it, by name. */
export class ShownTurn {
  constructor(log, turn, actions) {
    this.log = log;
    this.turn = turn;
    this.waits = false;
    this.said = h("div", { class: "said" });
    this.thoughts = h("details", { hidden: true }, h("summary", {}, "What the model thought"), h("div", { class: "said" }));
    this.failure = h("p", { class: "bad", role: "alert", hidden: true });
    const own = turn.role === "user";
    this.element = h(
      "article",
      { class: `turn ${turn.role}` },
      h("h3", {}, own ? "You" : "Model"),
      own ? null : this.thoughts,
      this.said,
      this.failure,
      this.#buttons(actions),
    );
    log.append(this.element);
    this.#show();
  }

  /** Shows what the turn is by now, with the next picture of the screen. */
  refresh() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      this.#show();
    });
  }

  /** Lets the turn be written anew; `done` gets its new text. */
  edit(done) {
    const field = h("textarea", { rows: "4", dir: "auto", "aria-label": "The message, to be edited" });
    field.value = this.turn.content;
    const form = h(
      "form",
      { onsubmit: (event) => (event.preventDefault(), done(field.value)) },
      field,
      h("button", { type: "submit" }, "Ask again"),
      h("button", { type: "button", onclick: () => this.#show() }, "Leave it"),
    );
    this.said.replaceChildren(form);
    field.focus();
  }

  #show() {
    const { log } = this;
    const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    this.said.replaceChildren(...this.#content());
    this.failure.hidden = !this.turn.failure;
    this.failure.textContent = this.turn.failure ?? "";
    this.thoughts.hidden = !this.turn.thinking;
    if (this.turn.thinking) this.thoughts.lastElementChild.replaceChildren(...markdown(this.turn.thinking));
    if (follows) log.scrollTop = log.scrollHeight;
  }

  #content() {
    if (this.turn.role === "assistant") return markdown(this.turn.content);
    return this.turn.content.split("\n").map((line) => h("p", { dir: "auto" }, line));
  }

  #buttons(actions) {
    const copy = copies(h("button", { type: "button" }, "Copy"), () => this.turn.content);
    const others = Object.entries(actions).map(([name, act]) =>
      h("button", { type: "button", onclick: () => act(this) }, name),
    );
    return h("div", { class: "actions" }, copy, ...others);
  }
}
