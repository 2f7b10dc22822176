// The conversations of this browser: turns, system prompt and sampling, each kept by itself, as several pages may be open.

import { drop, keep, kept, keysWith } from "./keeping.js";

const KEY = "layerline.conversation.";
const MOST = 50;
const TITLE_LETTERS = 40;

/** All of them, the latest first; there is always one. */
export class Conversations {
  constructor() {
    const found = keysWith(KEY).map(kept);
    this.all = found.filter((each) => Array.isArray(each?.turns)).sort((one, other) => other.used - one.used);
    for (const old of this.all.splice(MOST)) drop(KEY + old.id);
    if (!this.all.length) this.begin();
    this.current = this.all[0];
  }

  /** A new one, unless the current one is new itself. */
  begin() {
    if (this.current && !this.current.turns.length) return;
    const settings = this.current ? { ...this.current.settings } : {};
    const id = crypto.getRandomValues(new Uint32Array(2)).join("-");
    this.current = { id, used: Date.now(), turns: [], settings };
    this.all.unshift(this.current);
  }

  /** Goes on with the one of that id. */
  choose(id) {
    this.current = this.all.find((each) => each.id === id) ?? this.current;
  }

  /** Deletes the current one. */
  forget() {
    drop(KEY + this.current.id);
    this.all = this.all.filter((each) => each !== this.current);
    this.current = null;
    if (this.all.length) [this.current] = this.all;
    else this.begin();
  }

  /** Keeps one; where there is no room the oldest go. */
  keep(conversation) {
    conversation.used = Date.now();
    while (!keep(KEY + conversation.id, conversation) && this.all.length > 1) {
      const oldest = this.all.filter((each) => each !== conversation).pop();
      this.all = this.all.filter((each) => each !== oldest);
      drop(KEY + oldest.id);
    }
  }
}

/** What a conversation is called. */
export function titleOf(conversation) {
  const [first] = conversation.turns;
  const text = first ? first.content.trim().split("\n")[0] : "New conversation";
  return text.length > TITLE_LETTERS ? `${text.slice(0, TITLE_LETTERS)} …` : text;
}
